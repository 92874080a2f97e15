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


def test_entries_are_kept_in_order(transcript):
    assert len(transcript) == 4
    assert transcript.entries == tuple(transcript)
    assert transcript.entries[0] == Entry(0, "north", "server", FIRST)
    assert [entry.round for entry in transcript] == [0, 0, 1, 2]
    assert transcript.participants == ("north", "server", "south")
    assert transcript.n_bytes == sum(len(e.message.to_bytes()) for e in transcript)


def test_each_participant_sees_what_it_sent_and_received(transcript):
    south = transcript.seen_by("south")
    assert [(e.sender, e.recipient) for e in south] == [("south", "server"), ("north", "south")]
    assert FIRST not in south.messages(Message)
    server = transcript.seen_by("server")
    assert server.messages(InterpolatingMeasure) == [FIRST, SECOND]
    assert server.messages(DistanceMessage) == [DistanceMessage(2.0)]
    assert len(transcript.seen_by("stranger")) == 0
    assert len(transcript.seen_by("south").seen_by("north")) == 1


def test_a_view_does_not_grow(transcript):
    seen = transcript.seen_by("north")
    transcript.record(3, "north", "server", FIRST)
    assert (len(seen), len(transcript)) == (3, 5)
    seen.record(9, "north", "server", FIRST)
    assert len(transcript) == 5


def test_entries_cannot_be_changed_or_removed(transcript):
    with pytest.raises(AttributeError, match="no setter"):
        transcript.entries = ()
    with pytest.raises(AttributeError, match="cannot assign"):
        transcript.entries[0].sender = "nobody"
    with pytest.raises(TypeError, match="does not support item assignment"):
        transcript.entries[0] = None
    with pytest.raises(TypeError, match="holds messages, got str"):
        transcript.record(0, "north", "server", "rows")


def test_messages_are_found_by_class_and_sender(transcript):
    assert transcript.messages(InterpolatingMeasure) == [FIRST, SECOND]
    assert transcript.messages(InterpolatingMeasure, sender="south") == [SECOND]
    assert len(transcript.messages(Message)) == 4


def test_tables_and_cards_show_sizes_and_meanings_only(transcript):
    frame = transcript.to_frame()
    assert list(frame.columns) == ["round", "sender", "recipient", "kind", "n_bytes", "reveals"]
    assert frame["n_bytes"].sum() == transcript.n_bytes
    assert frame["kind"].tolist()[-1] == "distance"
    assert "Every row of the sender" in frame["reveals"][0]
    assert repr(transcript).startswith("<Transcript of 4 messages, ")
    card = transcript._repr_html_()
    assert "north → server: 1 × interpolating measure" in card
    assert "Every row of the sender" in card
    assert repr(Transcript()) == "<Transcript of 0 messages, 0 bytes, between nobody>"
    assert len(Transcript().to_frame()) == 0
    assert "0 messages" in Transcript()._repr_html_()
