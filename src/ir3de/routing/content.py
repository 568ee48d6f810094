"""How much content a turn of a chat has: its words that are not generic.

"Ok, and how long does that take?" can be said about anything. A router must still give such a turn to somebody, and the
words alone would decide by accident. A conversation therefore counts the words that say what a turn is about.
"""

from __future__ import annotations

from string import punctuation

ENOUGH_WORDS = 2  # of content: a turn with so many stands on its own
WORDS_AT_A_TIME = 8
MAX_GENERIC_CHARS = 80  # no turn that is longer is made of generic words alone

# English words that any chat may contain, whatever it is about. Other languages have none here, so every word counts.
_WORDS = """
1st 2nd 3rd a able about above actually add additional advice advise after afterwards again against agree ah ahead
ain't all alone along already alright also alternative alternatively alternatives although always am amazing an and
another answer answered answers any anybody anyone anything anyway apart applies apply are aren't around as ask asked
asks assume at avoid away awesome back bad basically be became because become becomes been before begin beginning
being believe besides best better between big bit both bottom brief briefly bullet bullets but by bye call came can
can't carry case cases cause causes certain certainly change changed changes cheap check cheers choice choices choose
clarify clear clearer come comes coming common concise confirm confused confusing consider continue cool correct cost
costs could could've couldn't cut dangerous day days decide definitely depend depends describe detail detailed details
did didn't differ difference differences different differently difficult do does doesn't doing don't done double-check
down dr during each easier easily easy either elaborate eli5 else end enough especially even ever every everybody
everything exactly example examples excellent except expect expensive explain explained explains explanation extra
false fast faster feel few fewer find finds fine finish first five fix fixes follow for forget former found from
further furthermore future gave generally get gets getting gist give given gives go goes going gone gonna good got
gotta great guess had hadn't haha happen happened happening happens hard harder has hasn't have haven't having he he's
hear hello help helped helpful helping helps her here here's hers hey hi him his hm hmm hold hope hopefully how how's
however huh i i'd i'll i'm i've idea ideas if important in instance instead into invent invented is isn't issue issues
it it'd it'll it's its itself just k keep keeps kept kind kinda kinds kk knew know known knows last later latter least
leave left less let let's lets like liked line lines list lol long longer look looked looking looks lost lot lots love
made main make makes making many matter matters may maybe me mean means meant mention mentioned middle might mind mine
moment more most move much must mustn't my myself nah necessary need needs neither never next nice no none nope normal
not nothing now of off often oh ok okay okey old on once one ones only onto option options or other others our ours
out over overall paragraph part parts past pay people perfect perhaps person pick plain please pls plz point points
possible possibly precise prefer pretty prevent previous price probably problem problems proceed put question
questions quick quickly quite rather react really reason reasons recommend recommended remain remember repeat rephrase
restate review reword rewrite right risky run safe said same saw say says sec second section see seen sees sense
sentence sentences set several shall she she's short shortened shorter should should've shouldn't show showed shown
shows similar simple simpler simply since slow small so solve some somebody someone something sometimes soon sorry
sort specific start started starts stay stays step steps still stop stuff such suggest suggested suggestion sum
summarise summarize summary sure surely take taken takes taking talk tell tells term terms text than thank thanks
thankyou that that's the their theirs them then there there's these they they'd they're they've thing things think
thinks third this those though thought three through thx time times tl tldr to today together told tomorrow too took
top tried tries true try trying turn twice two ty type ugh uh um unable under understand understood unless until up us
use used useful uses using usually verify version very wait wanna want wanted wants was wasn't way ways we we're we've
welcome well went were weren't what what's whatever when where where's which whichever while who who's whom whose why
will with without won't wonder wonderful wondering word words work worked working works worse worst worth would
would've wouldn't wow wrong ya yea yeah year yep yes yesterday yet you you'd you'll you're you've your yours yourself
yup
"""
GENERIC_WORDS = frozenset(_WORDS.split())

_MARKS = punctuation + "…–—’‘“”„«»¿¡。，？！"


def count_content(text: str) -> int:
    """How many words of a turn say what it is about, up to `ENOUGH_WORDS`.

    >>> count_content("ok, and how long does that take?"), count_content("and in Python?")
    (0, 1)
    >>> count_content("Can my landlord evict me?")
    2
    """
    if len(text) > MAX_GENERIC_CHARS:
        return ENOUGH_WORDS
    found, rest, generic = "", text.lower(), GENERIC_WORDS
    while rest:
        words = rest.split(None, WORDS_AT_A_TIME)  # most turns show their content at once
        rest = words.pop() if len(words) > WORDS_AT_A_TIME else ""
        for word in words:
            if word in generic:
                continue
            bare = word.strip(_MARKS)
            if bare in generic or not bare or bare == found or bare.replace("’", "'") in generic:
                continue
            if found:
                return ENOUGH_WORDS
            found = bare
    return 1 if found else 0
