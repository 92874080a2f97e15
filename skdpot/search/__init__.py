"""A hyper-parameter search whose result is private, including the choice.

A search makes a random, secret number of trials. Each fits one candidate with noise, scores it with
noise on held-out rows, and is forgotten unless it is the best one.

Papers: Liu and Talwar, "Private selection from private candidates", 2019; Papernot and Steinke,
"Hyperparameter tuning with Rényi differential privacy", 2022.

Files, in the order to read them:

- ``private_search``: the estimator
- ``private_parts``: the private parts of an estimator, and the parameters that are reserved
- ``candidates``: copies of the estimator with other parameters
- ``splits`` and ``plan``: the public splits, and the cost of a search with its proof
- ``scorers``: scores and their sensitivity
- ``fit_data`` and ``task``: the private data, and everything that is fixed before the first trial
- ``made_up_rows``: what fails on any rows is refused before the charge
- ``trials`` and ``fits``: trials, the noise of scores, and fits under budgets of their own
- ``person_folds``: folds of persons, for scikit-learn's searches with a shared budget

From the core: the cost of the best of a random number of trials (``privacy.selection``), accounts
and budgets (``privacy``), the parts of pipelines that learn (``privacy.pipelines``), and the gate,
which forgets the releases of other trials (``release.gate``).
"""
