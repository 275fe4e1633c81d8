import itertools
import unicodedata

import pytest

from keras_transformer.text.normalization import normalization_rule, used_shapes
from keras_transformer.text.tokenization import Tokenizer, TokenizerConfig, train_sentencepiece

#: The first article of the Universal Declaration of Human Rights, or a part of it, or a common phrase.
SCRIPTS = {
    "Amharic": "የሰው፡ልጅ፡ሁሉ፡ሲወለድ፡ነጻና፡በክብርና፡በመብትም፡እኩልነት፡ያለው፡ነው።",
    "Arabic": "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق، وقد وُهبوا عقلًا وضميرًا؟ ﷺ",
    "Armenian": "Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ ու իրավունքներով։",
    "Balinese": "ᬲᬓᬮ ᬫᬦᬸᬱ",
    "Bengali": "সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে।",
    "Burmese": "လူတိုင်းသည် တူညီ လွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့် လည်းကောင်း၊",
    "Cherokee": "ᏂᎦᏓ ᎠᏂᏴᏫ ᏂᎨᎫᏓᎸᎾ ᎠᎴ ᎤᏂᏠᏱ",
    "Chinese": "人人生而自由，在尊严和权利上一律平等！（他们）赋有“理性”和良心……对吗？20％：是",
    "Cyrillic": "Всі люди народжуються вільними і рівними у своїй гідності та правах; №\u202f5 — ґанок, їжа, йод.",
    "Devanagari": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता — क्‍या ज़रूर?",
    "Georgian": "ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით.",
    "Greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια· ᾧ, ἐν ἀρχῇ ἦν ὁ λόγος",
    "Gujarati": "પ્રતિષ્ઠા અને અધિકારોની દૃષ્ટિએ સર્વ માનવો જન્મથી સ્વતંત્ર અને સમાન હોય છે.",
    "Gurmukhi": "ਸਾਰਾ ਮਨੁੱਖੀ ਪਰਿਵਾਰ ਆਪਣੀ ਮਹਿਮਾ, ਸ਼ਾਨ ਅਤੇ ਹੱਕਾਂ ਦੇ ਪੱਖੋਂ",
    "Hebrew": "כָּל בְּנֵי הָאָדָם נוֹלְדוּ בְּנֵי חוֹרִין; כל בני־האדם, ״שלום״ ו׳ה׳ בְּרֵאשִׁ֖ית",
    "Japanese": "すべての人間は、生れながらにして自由であり、「尊厳」と権利とについて平等である。ＮＨＫ・ｱｲｳ①㈱㎏",
    "Kannada": "ಎಲ್ಲಾ ಮಾನವರೂ ಸ್ವತಂತ್ರರಾಗಿಯೇ ಜನಿಸಿದ್ಧಾರೆ. ರ‍್ಯಾಂಕ್",
    "Khmer": "មនុស្សទាំងអស់ កើតមកមានសេរីភាព និងសមភាព ក្នុងផ្នែកសេចក្ដីថ្លៃថ្នូរ",
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "Lao": "ມະນຸດທຸກຄົນເກີດມາມີສິດເສລີພາບ ແລະ ສະເໝີໜ້າກັນໃນທາງກຽດຕິສັກ ນ້ຳ",
    "Latin": "Tất cả mọi người đều tự do: «nº 1ª», m², H₂O, 2⁄3 ½ ¾ ™ € … ‘a’ “b” ĳ ŀl ŉ ſ – — Ǆ",
    "Malayalam": "മനുഷ്യരെല്ലാവരും തുല്യാവകാശങ്ങളോടും അന്തസ്സോടും സ്വാതന്ത്ര്യത്തോടും അവൻ‍ ജനിച്ചവരാണ്‌.",
    "Mongolian": "ᠬᠦᠮᠦᠨ ᠪᠦᠷ ᠲᠥᠷᠥᠵᠦ ᠮᠡᠨᠳᠡᠯᠡᠬᠦ ᠡᠷᠬᠡ ᠴᠢᠯᠥᠭᠡ ᠲᠡᠢ ᠠᠨ᠎ᠠ ᠭᠠᠵᠠᠷ᠋",
    "N'Ko": "ߡߐ߱ ߓߍ߯ ߡߏ߬ߦߌ ߟߊߣߍ߲߫",
    "Odia": "ଜନ୍ମକାଳରୁ ସବୁ ମଣିଷ ସ୍ୱାଧୀନ ଏବଂ ମର୍ଯ୍ୟାଦା ଓ ଅଧିକାରରେ ସମାନ ।",
    "Persian": "تمام افراد بشر آزاد به دنیا می‌آیند و از لحاظ حیثیت و کتاب‌های خانه‌ها با هم برابرند؛ ٪۱۲٫۵",
    "Sinhala": "සියලු මනුෂ්‍යයෝ නිදහස්ව උපත ලබා ඇත. ශ්‍රී ලංකා",
    "Syriac": "ܟܠ ܒܪܢܫܐ ܐܬܝܠܕ ܚܐܪܝܐ ܘܒܪ ܙܕܩܐ",
    "Tamil": "மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.",
    "Telugu": "ప్రతిపత్తిస్వత్వముల విషయమున మానవులెల్లరును జన్మతః స్వతంత్రులును సమానులును నగుదురు.",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์ ทำงาน น้ำ คำ",
    "Tibetan": "འགྲོ་བ་མིའི་རིགས་རྒྱུད་ཡོངས་ལ་སྐྱེས་ཙམ་ཉིད་ནས་ཆེ་མཐོངས་དང༌།",
    "Tifinagh": "ⴰⵔ ⴷ ⵜⵜⵍⴰⵍⴰⵏ ⵎⵉⴷⴷⵏ ⴳⴰⵏ ⵉⵍⴻⵍⵍⵉⵜⵏ",
    "Urdu": "تمام انسان آزاد اور حقوق و عزت کے اعتبار سے برابر پیدا ہوئے ہیں۔ علی‌گڑھ",
    "emoji": "👩‍👩‍👧 ❤️ 👍🏽 1️⃣ 🏴‍☠️ 🇩🇪 ☺️ ♪ →",
}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(train_sentencepiece(["one two three", "four five six"], TokenizerConfig()))


@pytest.fixture(scope="module")
def normalized(tokenizer):
    return lambda text: tokenizer.decode(tokenizer.encode([text]))[0]


@pytest.fixture(scope="module")
def tokenizer_of_all():
    """Its training text contains the texts, so that it keeps their letters in other shapes."""
    return Tokenizer(train_sentencepiece(SCRIPTS.values(), TokenizerConfig()))


@pytest.mark.parametrize("name", SCRIPTS)
def test_text_comes_back(name, normalized, tokenizer_of_all):
    text = unicodedata.normalize("NFC", SCRIPTS[name]).replace("\u202f", " ")
    assert tokenizer_of_all.decode(tokenizer_of_all.encode([text])) == [text]
    if not used_shapes([text]):
        assert normalized(text) == text


def test_invisible_characters_are_removed(normalized):
    invisible = [
        *map(chr, (*range(1, 9), 14, 27, 127, 128, 0x9F, 0xAD, 0x34F, 0x61C, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F)),
        *map(chr, (*range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFE00, 0xFE0E, 0xFEFF, 0xFFF9, 0x1D173)),
        *map(chr, (0xE0001, 0xE0041, 0xE007F, 0xE0100, 0xE01EF)),
    ]
    for character in invisible:
        assert normalized(f"Two wo{character}men") == "Two women", f"U+{ord(character):04X}"


def test_white_space_becomes_one_space(normalized):
    spaces = "\t\v\f\x85\xa0\u2002\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
    assert normalized(f" {spaces}a{spaces} b \u200b c{spaces}") == "a b c"


@pytest.mark.parametrize("text", ["Việt Nam ở ữ ǖ", "Ά ᾧ ᾴ", "한국어 각", "ñ ç Å Ω", "कि क़", "שׁ", "が パ"])
def test_equal_spellings_are_composed(text, normalized):
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert normalized(decomposed) == normalized(composed) == composed


def test_marks_in_any_order_are_composed(normalized):
    for marks in itertools.permutations("\u0323\u0302"):
        assert normalized("a" + "".join(marks)) == "ậ"
    assert normalized("\u00e2\u0323") == normalized("\u1ea1\u0302") == "ậ"
    assert normalized("가\u11a8") == "각"


def test_letters_in_other_shapes_become_plain(normalized):
    assert normalized("Ｔｗｏ　ｍｅｎ，　２０　（ａｇｅｄ）．") == "Two men, 20 (aged)."
    assert normalized("ﬁnd 𝐛𝐨𝐥𝐝 ﬄ ﬓ") == "find bold ffl մն"
    assert normalized("ﻣﺮﺣﺒﺎ") == "مرحبا"
    assert normalized("ｶﾞｷﾞﾊﾟｱ") == "ガギパア"


def test_shapes_of_the_training_text_are_kept():
    rows = [("２０２４年にＮＨＫ", "２０２４年に")] * 3
    assert used_shapes(text for pair in rows for text in pair) == set("２０４ＮＨＫ")
    tokenizer = Tokenizer(train_sentencepiece([rows[0][0]], TokenizerConfig()))
    assert tokenizer.decode(tokenizer.encode(["２０年にＮ２Ａ"])) == ["２０年にＮ２A"]


def test_rare_shapes_are_not_kept():
    assert used_shapes(["a" * 99_999 + "Ａ"]) == {"Ａ"}
    assert used_shapes(["a" * 100_000 + "Ａ"]) == set()


def test_the_rule_changes_nothing_else():
    """Each entry is canonical composition, the removal of invisible characters and white space, or a plain letter."""
    for line in normalization_rule().splitlines():
        string, replacement = ("".join(chr(int(code, 16)) for code in part.split()) for part in line.split("\t"))
        assert string != replacement
        if replacement.strip() and unicodedata.normalize("NFC", string) != replacement:
            is_joined = string[1:] in ("\u200c", "\u200d") and string[0] == replacement
            is_plain = unicodedata.normalize("NFKC", string) == replacement and any(map(str.isalnum, replacement))
            assert is_joined or is_plain or string in "．＂＇", line
