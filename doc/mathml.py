"""Formulas as MathML, which browsers show by themselves: no script, nothing from the network."""

from docutils import nodes
from docutils.utils.math import MathError, toplevel_code
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.errors import ExtensionError

# What LaTeX takes as it is, and docutils does not.
REPLACED = {
    "±": r"\pm ",
    "−": "-",
    "×": r"\times ",
    "⟨": r"\langle ",
    "⟩": r"\rangle ",
    r"\dots,": r"\ldots,",
}


def to_mathml(source, block):
    """Translate a formula from LaTeX; displayed ones may have several lines."""
    for there, here in REPLACED.items():
        source = source.replace(there, here)
    if block and r"\\" in toplevel_code(source):
        source = rf"\begin{{align*}}{source}\end{{align*}}"
    try:
        return tex2mathml(source, as_block=block)
    except (MathError, SyntaxError) as error:
        raise ExtensionError(f"Not understood as a formula: {source!r} ({error})") from error


def visit_inline(translator, node):
    """Put a formula into the line and leave out its source."""
    translator.body.append(to_mathml(node.astext(), False))
    raise nodes.SkipNode


def visit_block(translator, node):
    """Put a formula into a line of its own and leave out its source."""
    translator.body.append(f'<div class="formula">{to_mathml(node.astext(), True)}</div>')
    raise nodes.SkipNode


def setup(app):
    """Register as one of the ways to write formulas."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
