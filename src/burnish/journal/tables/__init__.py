"""The journal's tables. Rows that record what happened are never changed; state columns (marked) are.

Token arrays are compact binary (int32, float32, little-endian). Messages and parts of prompts are stored once,
by content hash.

A query names a column as `sqlmodel.col(Row.column)`: mypy then checks its name and its type.
"""

from burnish.journal.tables.agents import AgentRow, KeyRow, OptOutRow
from burnish.journal.tables.groups import GroupSampleRow, ShadowGroupRow, ShadowRow
from burnish.journal.tables.jobs import (
    CompareJob,
    ErasureJob,
    JobRow,
    JudgeJob,
    LeaseRow,
    LoadJob,
    ReplayJob,
    RubricJob,
    ShadowJob,
)
from burnish.journal.tables.steps import SampleRow, StepRow
from burnish.journal.tables.turns import (
    BlobRow,
    FeedbackRow,
    InteractionRow,
    JudgeCheckRow,
    JudgeCostRow,
    JudgementRow,
    NextStateRow,
    PromptPartRow,
    SegmentRow,
    SessionRow,
)
from burnish.journal.tables.versions import AliasRow, AuditRow, CanaryRow, ComparisonRow, VersionRow

__all__ = [
    "AgentRow",
    "AliasRow",
    "AuditRow",
    "BlobRow",
    "CanaryRow",
    "CompareJob",
    "ComparisonRow",
    "ErasureJob",
    "FeedbackRow",
    "GroupSampleRow",
    "InteractionRow",
    "JobRow",
    "JudgeCheckRow",
    "JudgeCostRow",
    "JudgeJob",
    "JudgementRow",
    "KeyRow",
    "LeaseRow",
    "LoadJob",
    "NextStateRow",
    "OptOutRow",
    "PromptPartRow",
    "ReplayJob",
    "RubricJob",
    "SampleRow",
    "SegmentRow",
    "SessionRow",
    "ShadowGroupRow",
    "ShadowJob",
    "ShadowRow",
    "StepRow",
    "VersionRow",
]
