"""A business's pages as they are served: those of a rollout under way tell how it goes now."""

from datetime import datetime

from evals.report import INDEX, read_entries, render_index, render_rollout_report, with_canary
from flows.controller.controller import Controller
from flows.controller.rollout_report import rollout_report
from pipeline.config import BusinessConfig
from pipeline.rollout.state import canary_of


def served_page(controller: Controller, business: BusinessConfig, name: str, now: datetime) -> str | None:
    """A page as HTML; None when there is none of this name.

    Args:
        name: a file name without any path.
    """
    folder = controller.config.state_dir / "reports" / business.business
    if name == INDEX:
        return render_index(read_entries(folder), business=business, generated_at=now)
    state = controller.store.read(business.business).state
    seen = controller.seen.get(business.business)
    report = rollout_report(state, business, seen.step if seen else None, seen.reason if seen else "")
    if report and canary_of(state) and name == f"rollout-v{report.version}.html":
        return render_rollout_report(report, business=business, generated_at=now)
    path = folder / name
    if not path.is_file():
        return None
    page = path.read_text(encoding="utf-8")
    return with_canary(page, report, business) if report and name == f"decision-v{report.version}.html" else page
