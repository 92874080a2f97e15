"""What may be said when training on private records fails."""

from skdpot.exceptions import ReplayError

__all__ = ["publishable"]


def publishable(error: BaseException, estimator: str) -> BaseException:
    """Return an error that quotes nothing of what it happened on.

    A network of the caller's own may raise anything, with values of private rows in the text, and
    the error itself then tells that such a row is there.

    Parameters
    ----------
    error : BaseException
        What stopped training.
    estimator : str
        Name for the message.

    Returns
    -------
    BaseException
        An interrupt, and an error of a replay, as it is; a `RuntimeError` of fixed text for
        everything else, to be raised where `error` is no longer handled, so that it is not
        attached.
    """
    if not isinstance(error, Exception) or isinstance(error, ReplayError):
        return error
    return RuntimeError(
        f"{estimator}: training failed with a {type(error).__name__}, of which the text is not "
        "shown because it may quote private values. What was charged stays charged. Try the "
        "network on made-up rows of every size; it must not fail for any finite row."
    )
