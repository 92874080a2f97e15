"""What runs at a party's node: it answers from its own file, as its own settings allow."""

from distances.settings import make_party, review
from skdpot.distance.flower import client_app

app = client_app(
    lambda context: make_party(context.node_config),
    review=lambda request, context: review(request, context.node_config),
)
