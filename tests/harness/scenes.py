"""Scenes that several harnesses play: two parallel calls of the tool `look`, then one call, then an answer."""

from burnish.testing import FULL, Refusal, Scene, Scripted, Step

LOOK_TWICE = Scripted("", [("look", '{"at": "@mark north"}'), ("look", '{"at": "@mark south"}')])
LOOK_ONCE = Scripted("One more look.", [("look", '{"at": "@mark up"}')])
WALK = Scene(
    "walk", [Step([LOOK_TWICE]), Step([LOOK_ONCE]), Step([Scripted("I saw it: @mark")]), Step([Scripted("Bye. @mark")])]
)
RETRIES = Scene(
    "retries",
    [
        Step([LOOK_TWICE], [FULL, Refusal()]),
        Step([LOOK_ONCE], [Refusal(cut=True)]),
        Step([Scripted("@mark")], [FULL]),
        Step([Scripted("Bye. @mark")]),
    ],
)
