"""What users import, and from where: wings and core may change, these paths may not."""

from importlib import import_module

import pytest

PUBLIC = {
    "skdpot": """
        ClientContribution DPDomainAdapter DPSlicedFlowSampler DPSlicedGenerator
        DPTableSynthesizer FairPrivateClassifier FairPrivatePostProcessor
        FairPrivateRegressor FairPrivateTransformer PrivacyBudget PrivateSWAutoencoder
        PrivateScaler PrivateSearchCV PrivateTrajectorySampler PrivateWassersteinDistance
        SlicedSketch TableEncoder TableSchema check_pipeline check_search
    """.split(),
    "skdpot.audit": """
        gaussian_audit one_run_audit privacy_report reconstruct synthetic_membership
    """.split(),
    "skdpot.datasets": """
        make_biased_classification make_biased_regression make_branching_trajectories
        make_commuting_trajectories make_forking_trajectories make_lineage_trajectories
        make_ornstein_uhlenbeck_trajectories make_spiral_trajectories one_point_per_person
    """.split(),
    "skdpot.exceptions": """
        BudgetExceededError CalibrationError FairnessWarning LedgerError MessageError
        NotPrivateWarning OpenSketchError PrivacyWarning ProtocolRefusedError ReliabilityWarning
        ReplayError
        SkdpotError UnknownEventError
    """.split(),
    "skdpot.federated": """
        Party ReleaseFile SecureSum
    """.split(),
    "skdpot.mechanisms": """
        Architecture AutoencoderMechanism Barycenter BayesRule CodeParity CodePenalty
        DPSGD DistanceProtocol FairMechanism FedWad FitContext FlowMechanism Gradient
        ImageNetwork LatentNetwork MeanFieldLangevin Mechanism MechanismResult Moments
        PenaltyMechanism Presample PriorPenalty RankedOutputs Resample RowMechanism
        Sketch SketchedOutputs Sliced TrainingMechanism TrajectoryMechanism
        TrajectorySketch TransportedRows Triangle chosen_mechanism image_projections
        with_edges
    """.split(),
    "skdpot.metrics": """
        BudgetDisplay FairnessDisplay FairnessFrontierDisplay FlowDisplay MarginalsDisplay
        PrivacyUtilityDisplay SketchDisplay TrajectoryDisplay debiased_squared_distance
        demographic_parity_difference disparate_impact equalized_odds_difference
        frechet_distance make_parity_scorer marginal_total_variation
        marginal_wasserstein_distances path_sliced_wasserstein_distance
        sliced_wasserstein_distance train_synthetic_test_real wasserstein_distance
        wasserstein_parity
    """.split(),
    "skdpot.model_selection": """
        PersonKFold check_search
    """.split(),
    "skdpot.nets": """
        PrivateWassersteinGradient
    """.split(),
    "skdpot.preprocessing": """
        BooleanColumn CategoricalColumn DatetimeColumn Forbidden ImageCodes Implies
        LessEqual NumericColumn Pattern PrivateScaler SumTo TableColumn TableEncoder
        TableSchema TimedeltaColumn finite_rows
    """.split(),
    "skdpot.privacy": """
        Event GaussianEvent OutputError PrivacySpent PrivateEstimatorMixin Reliability
        SampledGaussianEvent calibrate charge compose gdp_delta gdp_epsilon gdp_mu
        plan_fit total_spent
    """.split(),
    "skdpot.release": """
        DataBounds Release pass_gate
    """.split(),
    "skdpot.sources": """
        ExactCounts Source
    """.split(),
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_where_users_import_them_from(module):
    assert [name for name in PUBLIC[module] if not hasattr(import_module(module), name)] == []


@pytest.mark.parametrize("module", PUBLIC)
def test_no_public_name_is_missing_from_the_list(module):
    assert sorted(import_module(module).__all__) == PUBLIC[module]
