"""OpenTelemetry spans of completions, by the GenAI semantic conventions; no word of a prompt or an answer is in them.

A span continues the client's trace (`traceparent`) and is handed on to the engine, so that one trace shows both. A
thread sends them in batches over OTLP/HTTP; what cannot be sent is dropped by the SDK after its own retries.
"""

from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pipeline.config import TracingConfig
from pipeline.gateway.answer import Answer
from pipeline.gateway.exchange import Headers
from pipeline.gateway.turn import Turn
from pipeline.records import StreamEnd

_PROPAGATOR = TraceContextTextMapPropagator()
_OPERATIONS = {b"/v1/chat/completions": "chat", b"/v1/completions": "text_completion"}


class Tracing:
    """Makes spans and sends them.

    Args:
        worker: the service instance.
    """

    def __init__(self, config: TracingConfig, worker: str) -> None:
        resource = Resource.create({"service.name": "tuneloop-gateway", "service.instance.id": worker})
        self._provider = TracerProvider(resource=resource, sampler=ParentBased(TraceIdRatioBased(config.share)))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{config.endpoint}/v1/traces")))
        self._tracer = self._provider.get_tracer("tuneloop.gateway")

    def begin(self, headers: Mapping[bytes, bytes], turn: Turn, path: bytes, *, stream: bool) -> trace.Span:
        """Start a turn's span, under the client's if it sent one."""
        sent = {
            name: headers[name.encode()].decode("latin-1") for name in _PROPAGATOR.fields if name.encode() in headers
        }
        operation = _OPERATIONS[path]
        return self._tracer.start_span(
            f"{operation} {turn.business}",
            context=_PROPAGATOR.extract(sent),
            kind=trace.SpanKind.SERVER,
            start_time=int(turn.started_at.timestamp() * 1e9),
            attributes={
                "gen_ai.operation.name": operation,
                "gen_ai.provider.name": "vllm",
                "gen_ai.request.model": turn.business,
                "gen_ai.request.stream": stream,
                "gen_ai.conversation.id": turn.conversation.session,
                "tuneloop.interaction_id": turn.interaction_id,
                "tuneloop.business": turn.business,
                "tuneloop.arm": turn.served.name,
                "tuneloop.user_group": turn.conversation.user_group,
            },
        )

    def passed_on(self, span: trace.Span) -> Headers:
        """Headers that make the engine's spans children of this one."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, context=trace.set_span_in_context(span))
        return "".join(f"{name}: {value}\r\n" for name, value in carrier.items()).encode()

    def end(self, span: trace.Span, turn: Turn, ended: StreamEnd, answer: Answer) -> None:
        """Finish a turn's span."""
        span.set_attributes(
            {
                "gen_ai.response.model": turn.served.model,
                "gen_ai.response.finish_reasons": [one["finish_reason"] or "" for one in answer.choices],
                "http.response.status_code": turn.status,
                "tuneloop.stream_end": ended.value,
            }
        )
        if answer.prompt_tokens is not None:
            span.set_attribute("gen_ai.usage.input_tokens", answer.prompt_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", answer.completion_tokens or 0)
        if turn.piece_times:
            span.set_attribute("gen_ai.response.time_to_first_chunk", (turn.piece_times[0] - turn.arrived) / 1e9)
        if ended is not StreamEnd.COMPLETE:
            span.set_attribute("error.type", ended.value)
            span.set_status(trace.StatusCode.ERROR)
        span.end()

    def close(self) -> None:
        """Send what is left (blocks)."""
        self._provider.shutdown()
