"""Transcripts: what was sent, in order, and to each participant its own part."""

import numpy as np
import pytest

from skdpot.federated.exchange import Entry, Transcript
from skdpot.federated.messages import DistanceMessage, InterpolatingMeasure, Message

FIRST, SECOND = InterpolatingMeasure(np.eye(3)), InterpolatingMeasure(2 * np.eye(3))


@pytest.fixture
def transcript():
    made = Transcript()
    made.record(0, "north", "server", FIRST)
    made.record(0, "south", "server", SECOND)
    made.record(1, "north", "south", DistanceMessage(1.0))
    made.record(2, "server", "north", DistanceMessage(2.0))
    return made


def test_entries_are_kept_in_order_and_never_changed(transcript):
    assert len(transcript) == 4
    assert transcript.entries == tuple(transcript)
    assert transcript.entries[0] == Entry(0, "north", "server", FIRST)
    assert transcript.participants == ("north", "server", "south")
    assert transcript.n_bytes == sum(len(e.message.to_bytes()) for e in transcript)
    with pytest.raises(AttributeError, match="no setter"):
        transcript.entries = ()
    with pytest.raises(AttributeError, match="cannot assign"):
        transcript.entries[0].sender = "nobody"
    with pytest.raises(TypeError, match="holds messages, got str"):
        transcript.record(0, "north", "server", "rows")


def test_each_participant_sees_what_it_sent_and_received(transcript):
    south = transcript.seen_by("south")
    assert [(e.sender, e.recipient) for e in south] == [("south", "server"), ("north", "south")]
    assert FIRST not in south.messages(Message)
    server = transcript.seen_by("server")
    assert server.messages(InterpolatingMeasure) == [FIRST, SECOND]
    assert server.messages(InterpolatingMeasure, sender="south") == [SECOND]
    assert server.messages(DistanceMessage) == [DistanceMessage(2.0)]
    assert len(transcript.seen_by("stranger")) == 0
    assert len(south.seen_by("north")) == 1
    # A view does not grow, and what is added to it is not in the whole.
    transcript.record(3, "server", "south", FIRST)
    south.record(9, "north", "server", FIRST)
    assert (len(south), len(transcript)) == (3, 5)


def test_tables_and_cards_show_sizes_and_meanings_only(transcript):
    frame = transcript.to_frame()
    assert list(frame.columns) == ["round", "sender", "recipient", "kind", "n_bytes", "reveals"]
    assert frame["n_bytes"].sum() == transcript.n_bytes
    assert "Every row of the sender" in frame["reveals"][0]
    card = transcript._repr_html_()
    assert "north → server: 1 × interpolating measure" in card
    assert "Every row of the sender" in card
    assert repr(transcript).startswith("<Transcript of 4 messages, ")
    assert repr(Transcript()) == "<Transcript of 0 messages, 0 bytes, between nobody>"
    assert len(Transcript().to_frame()) == 0
