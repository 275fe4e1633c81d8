"""Codes of languages, such as `en`, `pt-BR` and `zh-Hans`, and the languages that lingua identifies."""

import functools
import re
from collections.abc import Iterable
from typing import NamedTuple

_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")


def _pairs(text: str) -> dict[str, str]:
    """Reads pairs such as `"aa:aar ab:abk"`."""
    return {key: value for key, _, value in (pair.partition(":") for pair in text.split())}


#: The codes of ISO 639-1, each with that of ISO 639-3.
_ISO_639 = _pairs(
    "aa:aar ab:abk ae:ave af:afr ak:aka am:amh an:arg ar:ara as:asm av:ava ay:aym az:aze ba:bak be:bel bg:bul "
    "bi:bis bm:bam bn:ben bo:bod br:bre bs:bos ca:cat ce:che ch:cha co:cos cr:cre cs:ces cu:chu cv:chv cy:cym "
    "da:dan de:deu dv:div dz:dzo ee:ewe el:ell en:eng eo:epo es:spa et:est eu:eus fa:fas ff:ful fi:fin fj:fij "
    "fo:fao fr:fra fy:fry ga:gle gd:gla gl:glg gn:grn gu:guj gv:glv ha:hau he:heb hi:hin ho:hmo hr:hrv ht:hat "
    "hu:hun hy:hye hz:her ia:ina id:ind ie:ile ig:ibo ii:iii ik:ipk io:ido is:isl it:ita iu:iku ja:jpn jv:jav "
    "ka:kat kg:kon ki:kik kj:kua kk:kaz kl:kal km:khm kn:kan ko:kor kr:kau ks:kas ku:kur kv:kom kw:cor ky:kir "
    "la:lat lb:ltz lg:lug li:lim ln:lin lo:lao lt:lit lu:lub lv:lav mg:mlg mh:mah mi:mri mk:mkd ml:mal mn:mon "
    "mr:mar ms:msa mt:mlt my:mya na:nau nb:nob nd:nde ne:nep ng:ndo nl:nld nn:nno no:nor nr:nbl nv:nav ny:nya "
    "oc:oci oj:oji om:orm or:ori os:oss pa:pan pi:pli pl:pol ps:pus pt:por qu:que rm:roh rn:run ro:ron ru:rus "
    "rw:kin sa:san sc:srd sd:snd se:sme sg:sag si:sin sk:slk sl:slv sm:smo sn:sna so:som sq:sqi sr:srp ss:ssw "
    "st:sot su:sun sv:swe sw:swa ta:tam te:tel tg:tgk th:tha ti:tir tk:tuk tl:tgl tn:tsn to:ton tr:tur ts:tso "
    "tt:tat tw:twi ty:tah ug:uig uk:ukr ur:urd uz:uzb ve:ven vi:vie vo:vol wa:wln wo:wol xh:xho yi:yid yo:yor "
    "za:zha zh:zho zu:zul"
)
#: Codes that have another name in ISO 639: bibliographic and withdrawn codes, the standard form of a language with
#: several, `pb` and `zt` of LibreTranslate, and `ns` of M2M-100.
_OTHER_NAMES = {long: short for short, long in _ISO_639.items()} | _pairs(
    "alb:sq als:sq arb:ar arm:hy ayr:ay azj:az baq:eu bur:my chi:zh cmn:zh cze:cs dut:nl ekk:et fil:tl fre:fr fuv:ff "
    "gaz:om geo:ka ger:de gre:el hbs:sr-Latn ice:is in:id iw:he ji:yi jw:jv khk:mn kmr:ku knc:kr lvs:lv mac:mk mao:mi "
    "may:ms mo:ro mol:ro npi:ne ns:nso ory:or pb:pt-BR pbt:ps per:fa pes:fa plt:mg quy:qu rum:ro scc:sr scr:hr "
    "sh:sr-Latn slo:sk swh:sw tib:bo uzn:uz wel:cy ydd:yi zsm:ms zt:zh-Hant"
)
#: The script of Chinese in a region.
_CHINESE = {"CN": "Hans", "SG": "Hans", "MY": "Hans", "TW": "Hant", "HK": "Hant", "MO": "Hant"}
#: The script in which lingua knows a language that is written in several.
_LINGUA_SCRIPTS = _pairs("az:Latn bs:Latn hi:Deva kk:Cyrl mn:Cyrl ms:Latn pa:Guru sr:Cyrl")
#: End of the error message for an unknown code.
KNOWN_CODES = f"{', '.join(_ISO_639)}, or a code of three letters"


class Language(NamedTuple):
    """A language, as its code names it.

    Attributes:
        base: the language by its code of ISO 639-1 if it has one. `no` for both standards of Norwegian.
        form: its script, such as `Hans`, or the standard of Norwegian, `nb` or `nn`; `None` if the code leaves it open.
        region: the region, such as `BR`; `None` if the code leaves it open.
    """

    base: str
    form: str | None = None
    region: str | None = None


@functools.lru_cache(1000)
def normal_code(code: str) -> str:
    """Writes a code with hyphens and in the usual case.

    Example:

    >>> normal_code("pt_br"), normal_code(" EN "), normal_code("ZH-hans-cn")
    ('pt-BR', 'en', 'zh-Hans-CN')
    """
    language, *others = code.strip().replace("_", "-").split("-")
    cases = {2: str.upper, 4: str.title}
    return "-".join([language.lower(), *(cases.get(len(other), str.lower)(other) for other in others)])


def is_language(code: str) -> bool:
    """Whether a text is a language code, BCP 47 without its rare forms.

    Codes of two letters must be in ISO 639-1.

    Example:

    >>> [is_language(code) for code in ("en", "zh_hans", "tlh", "xx", "English")]
    [True, True, True, False, False]
    """
    code = normal_code(code)
    base = code.split("-")[0]
    return bool(_CODE.fullmatch(code)) and (len(base) == 3 or base in _ISO_639 or base in _OTHER_NAMES)


def checked_language(name: str, code: str | None) -> str | None:
    """Returns `normal_code(code)`, or `None`. `name` is the argument in the error message.

    Raises:
        ValueError: if `code` is not the code of a language.
    """
    if code is not None and not is_language(code):
        raise ValueError(
            f"`{name}` must be the code of a language, such as en or zh-Hans. Received: {name}={code!r}. "
            f"The known codes: {KNOWN_CODES}"
        )
    return None if code is None else normal_code(code)


@functools.lru_cache(1000)
def parse_language(code: str) -> Language:
    """Reads a code.

    Example:

    >>> parse_language("zh-TW"), parse_language("nb")
    (Language(base='zh', form='Hant', region='TW'), Language(base='no', form='nb', region=None))
    """
    code = normal_code(code)
    base, *others = code.split("-")
    base, *others = [*_OTHER_NAMES.get(base, base).split("-"), *others]
    region = next((other for other in others if re.fullmatch("[A-Z]{2}|[0-9]{3}", other)), None)
    form = next((other for other in others if re.fullmatch("[A-Z][a-z]{3}", other)), None)
    if base == "zh":
        form = form or _CHINESE.get(region or "")
    return Language("no", base, region) if base in ("nb", "nn") else Language(base, form, region)


def same_language(one: str, other: str) -> bool:
    """Whether two codes name one language in the same script, in any region.

    Example:

    >>> same_language("en-US", "en-GB"), same_language("zh-TW", "zh-CN"), same_language("nb", "nn")
    (True, False, False)
    """
    return parse_language(one)._replace(region=None) == parse_language(other)._replace(region=None)


def find_language(code: str, among: Iterable[str]) -> str | None:
    """Finds a known code by one that may be written in another way, or name more or less.

    The same code is found first, then one that names the same, then one without the region, then one without the script
    (RFC 4647, §3.4). Otherwise, the only known one of the language that has no other script is found.

    Example:

    >>> find_language("zh-CN", ["zh-Hans", "zh-Hant"]), find_language("zh", ["zh-Hans", "zh-Hant"])
    ('zh-Hans', None)
    >>> find_language("DEU", ["de", "en"]), find_language("pt", ["pt_BR"]), find_language("en-US", ["en-GB"])
    ('de', 'pt_BR', 'en-GB')
    """
    among = [*among]
    if code in among:
        return code
    spelled = {normal_code(one): one for one in among}
    if normal_code(code) in spelled:
        return spelled[normal_code(code)]
    wanted = parse_language(code)
    known = {parse_language(one): one for one in spelled.values()}
    for less in (wanted, wanted._replace(region=None), Language(wanted.base)):
        if less in known:
            return known[less]
    near = [one for one in known if one.base == wanted.base and _agree(one.form, wanted.form)]
    near = [one for one in near if _agree(one.region, wanted.region)] or near
    return known[near[0]] if len(near) == 1 else None


def _agree(one: str | None, other: str | None) -> bool:
    """Whether two parts of codes can mean the same: one of them is open, or they are equal."""
    return one is None or other is None or one == other


def lingua_languages(code: str) -> tuple:
    """The languages of lingua that a code names: two for `no`, none for a language that lingua does not know.

    The region of the code is ignored, and so is the script of Chinese. Lingua is in the extras `serve` and `clean`.

    Example:

    >>> [[one.name for one in lingua_languages(code)] for code in ("deu", "no", "zh-Hant", "gl", "sr-Latn")]
    [['GERMAN'], ['BOKMAL', 'NYNORSK'], ['CHINESE'], [], []]
    """
    import lingua

    language = parse_language(code)
    if language.form and language.form != _LINGUA_SCRIPTS.get(language.base, language.form):
        return ()
    names = [language.form or "nb", language.form or "nn"] if language.base == "no" else [language.base]
    found = [getattr(lingua.IsoCode639_1, name.upper(), None) for name in dict.fromkeys(names)]
    return tuple(lingua.Language.from_iso_code_639_1(one) for one in found if one is not None)


def codes_of_lingua() -> list[str]:
    """The codes of the languages that lingua knows."""
    import lingua

    return sorted(["no", *(one.iso_code_639_1.name.lower() for one in lingua.Language.all())])


def lingua_detector(languages: Iterable, preload: bool = False):
    """A detector of lingua for some of its languages. With `preload` it loads their models now."""
    import lingua

    builder = lingua.LanguageDetectorBuilder.from_languages(*languages)
    return (builder.with_preloaded_language_models() if preload else builder).build()
