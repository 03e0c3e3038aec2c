"""Frames made at random: every kind, with fields from ordinary to absurd but of the right type."""

from hypothesis import strategies as st

from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord, RemoteCause, ReplyError
from quarterdeck_protocol.link import frames
from quarterdeck_protocol.link.events import MAX_REASON_CHARS

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INTS = st.integers(-(2**63), 2**64 - 1) | st.integers(-1, 9)
FLOATS = st.floats(allow_nan=False) | st.integers(0, 9).map(float)
ABSURD_FLOATS = FLOATS | st.sampled_from([float("nan"), float("inf"), float("-inf"), -1.0, 0.0, 5e-324])

DOSSIERS = st.builds(
    Dossier,
    exit_status=st.none() | INTS,
    signal=st.none() | INTS,
    limit=st.none() | TEXT,
    stderr_tail=TEXT,
    peak_rss_bytes=st.none() | INTS,
    peak_is_sampled=st.booleans(),
    cpu_s=st.none() | FLOATS,
    uptime_s=st.none() | FLOATS,
    hints=st.lists(TEXT, max_size=2).map(tuple),
)
FAULTS = st.builds(
    FaultRecord,
    kind=st.sampled_from(FaultKind),
    message=TEXT,
    code=st.none() | TEXT,
    delivery=st.sampled_from(Delivery),
    cause=st.none() | st.builds(RemoteCause, TEXT, TEXT),
    dossier=st.none() | DOSSIERS,
    reply=st.none() | st.builds(ReplyError, INTS, TEXT, st.binary(max_size=20)),
    denied=TEXT,
)

HELLOS = st.builds(frames.Hello, link_version=INTS, package_version=TEXT, token=st.binary(max_size=40), pid=INTS)
WELCOMES = st.builds(frames.Welcome, package_version=TEXT)
BEATS = st.just(frames.Beat())
CREDITS = st.builds(frames.Credit, units=INTS)
_REQUEST = {"request_id": INTS, "timeout_s": ABSURD_FLOATS}
_PASSED_ON = {**_REQUEST, "progress": st.booleans(), "meta": st.binary(max_size=20)}
REQUESTS = (
    st.builds(frames.Open, **_REQUEST)
    | st.builds(frames.List, **_REQUEST, kind=st.sampled_from(["tools", "prompts"]))
    | st.builds(frames.Close, **_REQUEST)
    | st.builds(frames.Call, **_PASSED_ON, tool=TEXT)
    | st.builds(frames.Forward, **_PASSED_ON, method=TEXT, capabilities=st.binary(max_size=20), log_level=TEXT)
)
CANCELS = st.builds(
    frames.Cancel, request_id=INTS, reason=st.text(st.characters(exclude_categories=["Cs"]), max_size=MAX_REASON_CHARS)
)
CONDEMNATIONS = st.builds(frames.Condemn, limit=TEXT, detail=TEXT)
TOLD = (
    CONDEMNATIONS
    | st.builds(frames.AskAnswer, ask_id=INTS, code=INTS, message=TEXT)
    | st.builds(frames.Tell, method=TEXT)
    | st.just(frames.Listen())
    | st.just(frames.Authorize())
)
REPLIES = st.builds(
    frames.Answer, request_id=INTS, era=TEXT, result_type=TEXT, is_error=st.booleans(), denied=TEXT
) | st.builds(frames.Failed, request_id=INTS, fault=FAULTS)
NEWS = (
    st.builds(
        frames.Progress,
        request_id=INTS,
        progress=ABSURD_FLOATS,
        total=st.none() | ABSURD_FLOATS,
        message=st.none() | TEXT,
    )
    | st.builds(frames.Log, level=TEXT, logger=TEXT)
    | st.builds(frames.ListChanged, kind=st.sampled_from(["tools", "prompts", "resources"]))
    | st.builds(frames.Asked, ask_id=INTS, method=TEXT)
    | st.builds(frames.AskEnded, ask_id=INTS)
    | st.builds(frames.Note, method=TEXT)
    | st.builds(frames.Updated, uri=TEXT)
    | st.builds(frames.Listening, count=st.integers(0, 1_000))
    | st.builds(frames.Unauthorized, scopes=st.none() | st.lists(TEXT, max_size=3).map(tuple))
    | st.builds(frames.Quarantined, path=TEXT, kept=TEXT, why=TEXT)
    | st.builds(frames.Hinted, hint=TEXT)
    | st.builds(frames.Lost, fault=FAULTS)
    | st.just(frames.Started())
)
FRAMES = HELLOS | WELCOMES | BEATS | CREDITS | REQUESTS | CANCELS | TOLD | REPLIES | NEWS
