"""Three parties or more fit one sketch with the noise of one; MPyC adds up their messages.

    pip install . mpyc
    python examples/federated/secure_sum.py -M5

starts five parties on this machine. Between machines each party starts its own, see the manual of
MPyC: ``-P host:port`` for each party, ``-I`` with its own number, and ``--ssl``, without which
whoever can read the network reads the messages. Parties hold Shamir shares of each message. Up to
``mpc.threshold`` of them, by default the largest minority, learn nothing but the sum, if they
follow the protocol.
"""

import math

import numpy as np
from mpyc.runtime import mpc

from skdpot import SlicedSketch
from skdpot.federated import SecureSum


def add(values, largest):
    """Return the sum of the parties' arrays, which nobody has seen."""
    modulus = 2 * largest + 1
    field = mpc.SecFld(min_order=modulus)
    own = field.array(field.field.array(values.astype(object)))
    total = mpc.run(mpc.output(sum(mpc.input(own)))).value
    order = field.field.order
    return np.where(total > order // 2, total - order, total).astype(np.int64)


def main():
    """Take part with made-up rows."""
    mpc.run(mpc.start())
    rows = np.random.default_rng(mpc.pid).uniform(size=(2000, 3))  # this party's own
    sketch = SlicedSketch(epsilon=1.0, bounds=(0, 1), projections=np.eye(3), n_bins=32)
    parties = SecureSum(add, n_parties=len(mpc.parties), n_tolerated=mpc.threshold)
    parties.fit(sketch, rows)
    mpc.run(mpc.shutdown())
    if mpc.pid == 0:
        times = sketch.noise_scale_ / sketch.privacy_spent_.sigma
        merged = math.sqrt(len(mpc.parties))
        print(f"{sketch.n_samples_} rows, {times:.2f} times the noise of one ({merged:.2f} merged)")
        print(sketch.privacy_spent_)


if __name__ == "__main__":
    main()
