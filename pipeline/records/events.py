"""Interactions and feedback, from the gateway to joined and cleaned."""

from enum import StrEnum

from pydantic import AwareDatetime, JsonValue

from pipeline.records.base import BusinessKey, Message, Record, Sha256, Share, content_id


class Arm(StrEnum):
    """Which slice of a business's traffic an interaction belongs to."""

    STABLE = "stable"
    CONTROL = "control"  # served like stable, counted apart: same size and same time as candidate
    CANDIDATE = "candidate"


class StreamEnd(StrEnum):
    """How an answer ended."""

    COMPLETE = "complete"
    UPSTREAM_ERROR = "upstream_error"  # an error status, or an error event inside a stream
    UPSTREAM_CUT = "upstream_cut"  # the connection ended before the answer did
    ENGINE_ABORT = "engine_abort"  # a proper end of stream without any finish_reason
    CLIENT_ABORT_BEFORE_FIRST_TOKEN = "client_abort_before_first_token"
    CLIENT_ABORT = "client_abort"
    TIMEOUT = "timeout"


class Choice(Record):
    """One of the answers to a request."""

    index: int
    message: Message
    finish_reason: str | None = None


class Usage(Record):
    """Token counts as the engine gave them."""

    prompt_tokens: int
    completion_tokens: int


class Timings(Record):
    """Where the time of one request went, in milliseconds."""

    queue_ms: float
    ttft_ms: float | None = None
    """From the request's arrival to the first byte of the answer's body; None when there was none."""
    gap_p50_ms: float | None = None
    gap_p99_ms: float | None = None
    gap_max_ms: float | None = None
    total_ms: float


class Interaction(Record):
    """One request and its answer."""

    interaction_id: str
    business: BusinessKey
    session: str
    """Salted hash of the conversation's key."""
    session_known: bool
    """False when the key was only derived from the first messages: no regeneration is inferred from it."""
    user_key: str | None
    """Salted hash of the user's id; None when the client named no user."""
    user_group: str
    """Hundredth of the assignment hash, `g00` to `g99`: what the arm was chosen by."""
    arm: Arm
    share: Share
    """The candidate's share in force when this session was assigned."""
    rollout_salt: str
    model_version: str
    """What was dispatched: the serving name of the adapter, or the base model's id."""
    adapter: str | None
    """Serving name of the adapter; None when the base model answered."""
    base_model: str
    prompt_hash: Sha256
    """Over messages and tools."""
    request: dict[str, JsonValue]
    choices: tuple[Choice, ...]
    usage: Usage | None
    timings: Timings
    status: int
    """HTTP status that the client got."""
    stream_end: StreamEnd
    client: str
    """The User-Agent header, cut at 200 characters."""
    regenerates: str | None = None
    """The interaction whose answer this one was asked to replace."""
    started_at: AwareDatetime


class ShadowAnswer(Record):
    """What a candidate answered to a copy of a user's request, after the user had their answer. Nobody has seen it: it
    is no interaction, belongs to no arm, and no example is made of it."""

    interaction_id: str
    """The interaction whose request was repeated; an interaction has at most one shadow."""
    business: BusinessKey
    session: str
    user_key: str | None
    """Session and user of the interaction, so that an erasure of theirs reaches this."""
    rollout_salt: str
    model_version: str
    """Serving name of the candidate."""
    choices: tuple[Choice, ...]
    usage: Usage | None
    total_ms: float
    """From the dispatch to the end of the answer."""
    status: int | None
    """HTTP status of the engine; None when it gave none."""
    stream_end: StreamEnd
    started_at: AwareDatetime


class FeedbackKind(StrEnum):
    """What kind of signal a feedback is; each line names the values that it takes (null withdraws)."""

    THUMB = "thumb"  # "up" | "down"
    RATING = "rating"  # a number from 1 to 5; 4 and 5 are positive, 1 and 2 negative
    EDIT = "edit"  # the text as the user changed it
    REGENERATE = "regenerate"  # the interaction id of the new answer, or true
    CHOICE = "choice"  # {"over": <interaction id of the answer not chosen>}
    ABORT = "abort"  # true
    OUTCOME = "outcome"  # "passed" | "failed"
    COMMENT = "comment"  # free text


class Feedback(Record):
    """One signal about an interaction, as it is stored."""

    event_id: str
    interaction_id: str
    business: BusinessKey
    kind: FeedbackKind
    value: JsonValue
    choice_index: int = 0
    """Which of the answers it is about when the request asked for several."""
    user_key: str | None
    reason: str | None = None
    occurred_at: AwareDatetime
    received_at: AwareDatetime


class DropReason(StrEnum):
    """Why an interaction gave no example. Each interaction has exactly one reason or is the source of examples."""

    NO_FEEDBACK = "no_feedback"
    WITHDRAWN = "withdrawn"
    CONFLICT = "conflict"
    WEAK_EVIDENCE = "weak_evidence"  # only an abort, a comment, or a regeneration with nothing positive beside it
    REPLACED = "replaced"  # a regenerated answer whose successor has no positive evidence
    NOT_FINAL = "not_final"
    ERROR_ANSWER = "error_answer"
    INCOMPLETE = "incomplete"  # cut, aborted or timed out
    TRUNCATED_ANSWER = "truncated_answer"
    REFUSAL = "refusal"
    EMPTY_SIDE = "empty_side"
    IDENTICAL = "identical"
    IDENTICAL_AFTER_NORMALISE = "identical_after_normalise"
    TRIVIAL_EDIT = "trivial_edit"
    EQUALS_PROMPT = "equals_prompt"
    PROMPT_MISMATCH = "prompt_mismatch"
    PLACEHOLDER = "placeholder"  # a template's `{{name}}` left in the text
    BAD_MESSAGES = "bad_messages"
    BAD_ENCODING = "bad_encoding"
    SCRUB_FAILED = "scrub_failed"
    TOO_LONG = "too_long"
    EXACT_DUPLICATE = "exact_duplicate"
    NEAR_DUPLICATE = "near_duplicate"
    GOLDEN = "golden"  # it asks what the golden suite or a probe asks, which is never trained on
    ONE_CLASS = "one_class"
    USER_CAP = "user_cap"
    TOO_FEW_USERS = "too_few_users"
    HELD_OUT_NEIGHBOUR = "held_out_neighbour"  # a near-duplicate of a row on the other side of the split
    QUARANTINED = "quarantined"  # looks like poison; held until a person has looked
    POISON = "poison"  # a person has looked, and dropped it


class Dropped(Record):
    """A record that was left out, and why."""

    interaction_id: str
    reason: DropReason
    detail: str = ""
    """What exactly, without any text of a user."""
    kept: str | None = None
    """Of a duplicate: the interaction that stays in its place."""


class Signal(Record):
    """What one user finally said about one interaction: the latest feedback of a kind, withdrawals applied."""

    kind: FeedbackKind
    value: JsonValue
    choice_index: int = 0
    user_key: str | None
    reason: str | None = None
    occurred_at: AwareDatetime
    event_ids: tuple[str, ...]

    @property
    def over(self) -> str | None:
        """The interaction that a choice was made over; None for every other signal."""
        over = self.value.get("over") if self.kind is FeedbackKind.CHOICE and isinstance(self.value, dict) else None
        return over if isinstance(over, str) else None

    @property
    def sign(self) -> int:
        """1 when it says that the answer is good, -1 that it is bad, 0 when it says neither."""
        match self.kind, self.value:
            case (FeedbackKind.THUMB, "up") | (FeedbackKind.OUTCOME, "passed"):
                return 1
            case (FeedbackKind.THUMB, "down") | (FeedbackKind.OUTCOME, "failed"):
                return -1
            case FeedbackKind.RATING, int() | float() as stars if not isinstance(stars, bool):
                return 1 if stars >= 4 else -1 if stars <= 2 else 0
            case _:
                return 0


class RatedInteraction(Record):
    """An interaction with all that was finally said about it."""

    interaction: Interaction
    signals: tuple[Signal, ...]
    replaced_by: str | None = None
    """The interaction that regenerated this one."""


class QuarantineReason(StrEnum):
    """What makes signals look like poison."""

    BURST = "burst"  # one user gives far more signals in a short time than the others ever do
    GROUP = "group"  # users of one client, or of one hour, vote alike
    SAME_LINK = "same_link"  # edits put the same site into different answers
    SAME_TEXT = "same_text"  # edits put the same words into answers to different questions
    CONTRARIAN = "contrarian"  # one user votes against everybody else on comparable answers


class Finding(Record):
    """Signals that look like poison, and why; it holds no text of anybody."""

    business: BusinessKey
    reason: QuarantineReason
    evidence: str
    """In plain words; texts appear as hashes and counts only."""
    user_keys: tuple[str, ...]
    interaction_ids: tuple[str, ...]
    event_ids: tuple[str, ...]
    """The newest event of each signal: who says something else later has not said that yet."""

    @property
    def finding_id(self) -> str:
        """Hash of what is held and why: the same signals are the same finding on every night."""
        return content_id([self.business, self.reason, sorted(self.event_ids)])


class QuarantineState(StrEnum):
    """What becomes of a finding's signals."""

    HELD = "held"  # kept out until a person decides
    RELEASED = "released"  # used like any others
    DROPPED = "dropped"  # kept out for good


class Quarantined(Record):
    """A finding as it stands in the control database."""

    finding: Finding
    state: QuarantineState
    found_at: AwareDatetime
    decided_at: AwareDatetime | None = None
    decided_by: str | None = None
    why: str | None = None


class CleanRecord(Record):
    """A joined interaction whose texts hold no personal data any more: the only thing that examples are made of."""

    interaction_id: str
    business: BusinessKey
    session: str
    user_key: str | None
    model_version: str
    at: AwareDatetime
    messages: tuple[Message, ...]
    tools: tuple[dict[str, JsonValue], ...] = ()
    answer: Message
    """The rated answer as an assistant message."""
    edited: str | None = None
    signals: tuple[Signal, ...]
    replaced_by: str | None = None
    pii_counts: dict[str, int] = {}
    """Entity type to number of distinct values replaced."""
    facts: str = ""
    """Keyed hash of the numbers, negations and names in its texts before they were scrubbed."""
    backed_by: tuple[str, ...] = ()
    """Users who say the same of its duplicates."""
