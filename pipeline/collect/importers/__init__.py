"""Feedback that lies in other tools: one file each, from the tool's export to our records or a reason why not.

To add a tool: write its `read(source, make)` beside the others and name it here.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tool:
    """A tool whose exports can be imported."""

    module: str
    title: str
    example: str
    """A file as the tool names it, and what else to say."""
    where: str
    """How to get the file."""


_HERE = "pipeline.collect.importers"

TOOLS = {
    "openwebui": Tool(
        f"{_HERE}.openwebui",
        "Open WebUI",
        "feedback-history-export-1780174904.json",
        "Admin → Evaluations → Export; exported chats too",
    ),
    "chatgpt": Tool(
        f"{_HERE}.chatgpt",
        "ChatGPT",
        "chatgpt-export.zip",
        "Settings → Data controls → Export; the zip, its folder or one file of it",
    ),
    "langfuse": Tool(
        f"{_HERE}.langfuse",
        "Langfuse",
        "scores.csv --score user-feedback",
        "exported traces, observations or scores, a downloaded trace, pages of the API",
    ),
    "langsmith": Tool(
        f"{_HERE}.langsmith", "LangSmith", "feedback.jsonl --score user_score", "runs and feedback; bulk export too"
    ),
    "dify": Tool(
        f"{_HERE}.dify",
        "Dify",
        "dify_feedback_export.csv --timezone Asia/Shanghai",
        "console's feedback export, pages of GET /messages, annotations",
    ),
    "librechat": Tool(
        f"{_HERE}.librechat", "LibreChat", "messages.json", "mongoexport of messages, or exported conversations"
    ),
    "tensorzero": Tool(f"{_HERE}.tensorzero", "TensorZero", "chat_inference.jsonl", "rows of its tables, datasets"),
    "mlflow": Tool(f"{_HERE}.mlflow_traces", "MLflow traces", "traces.json", "traces and assessments"),
    "otel": Tool(
        f"{_HERE}.otel_genai",
        "OpenTelemetry GenAI",
        "spans.jsonl --score user_rating",
        "spans and log events as OTLP JSON",
    ),
    "argilla": Tool(f"{_HERE}.argilla", "Argilla", "records.json --scale 1:5", "records with their responses"),
    "labelstudio": Tool(f"{_HERE}.labelstudio", "Label Studio", "project-1.json", "JSON export of tasks"),
    "litellm": Tool(f"{_HERE}.litellm", "LiteLLM", "spend_logs.jsonl", "spend log with stored prompts"),
    "generic": Tool(
        f"{_HERE}.generic",
        "anything else",
        "feedback.jsonl",
        "JSON lines, JSON, CSV or Parquet in the form below",
    ),
}
"""By the name on the command line. Modules are imported by whoever needs one, so that listing the tools is quick."""

GENERIC_FORM = """\
a conversation    messages, conversations; or prompt (instruction, query) with
                  answer (completion, response, output)
which answer      interaction_id, trace_id, message_id, request_id or id; the
                  X-Interaction-Id of a gateway joins its log
a vote            rating, thumb, vote, feedback, label or score: 1 or -1, true
                  or false, up or down, like or dislike; numbers with --scale;
                  or kind and value as POST /v1/feedback takes them
an edited answer  edited, correction
in words          comment, reason
a pair            chosen and rejected; preferred_output and non_preferred_output
who, when, where  user_id; occurred_at or timestamp; session_id; model"""
"""What a row of `generic` may hold: a conversation, something said about an answer, or both."""
