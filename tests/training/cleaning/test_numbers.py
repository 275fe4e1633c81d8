import pytest

from keras_transformer.training.cleaning.numbers import has_equal_numbers

#: The same numbers, in the notation of two languages.
EQUAL = """
6:30 on 6 May | 06. Mai um 06:30
10 May 2020 | 10.05.2020
4/5/1990 | 4.5.1990
5, 6, 7 and 8 | 5,6,7 und 8
7:00 | 7 Uhr
1,200 | １，２００
3.5 | ٣٫٥
10:30 | 10.30 Uhr
1 000 000 | 1.000.000
1 and 2 | 2 und 1
7, 8 and 9 | 7
In 1999 12 cars | 12 Autos im Jahr 1999
In 2005 300 cars | Im Jahr 2005 wurden 300 Autos
On March 12 300 people | 300 Menschen am 12. März
12 345.67 euros | 12.345,67 Euro
٣٥ سيارة | 35 cars
none | keine
7:00 a.m. to 5:30 p.m. | 7 bis 17:30 Uhr
at 12:30 a.m. | um 0:30 Uhr
noon is 12 p.m. | 12 Uhr
at 3 in the morning | um 3 Uhr
6:30 p.m. | 18:30
22 December 2012 | 22.12.2012
9:05 | 9h05
9:05 | 9時05分
9:05 am | 오전 9시 05분
05/06/2021 | 5.6.21
December 25th, 2021 | 25.12.21
2021-12-25 | 25/12/2021
12/25/2021 | 25.12.2021
06.05. | 6.5.
25 Dec 2021 | 2021年12月25日
Dec. 25 | 25.12.
1,234,567.89 | 1.234.567,89
1 234 567,89 | 1,234,567.89
1 234,5 | 1'234.5
12,34,567 | 1,234,567
१२,३४,५६७ | 1,234,567
３．１４ | 3,14
٣٫١٤ | 3.14
۳٫۱۴ | 3.14
๓.๑๔ | 3.14
1st, 2nd and 3rd | 1., 2. und 3.
1er, 2e | 1st, 2nd
50% | 50 %
%50 | 50%
5 % to 10 % | 5–10 %
2019/20 | 2019/2020
2019–2020 season | Saison 2019/20
the 1960s | die 60er
1939-45 | 1939–1945
pages 10-12 | Seiten 10 bis 12
10 to 12 | 10—12
¾ cup | 0,75
1½ | 1.5
1 1/2 cups | 1½ Tassen
1/2 | ½
3.0 | 3
$20.00 | 20 $
CHF 1'200.- | 1200 Fr.
1.2 billion | 1.200.000.000
1,2 Milliarden | 1.2 billion
12万 | 120,000
1億2000万 | 120 million
3만 5000원 | 35,000 won
1万2000円 | 12,000 yen
11/9/1973, 9:30 | 11 de septiembre de 1973, 9:30
5,000 | 5 Tausend
5 lakh | 500,000
3 crore | 30 million
100 thousand | 10万
+1 (800) 555-0199 | 1-800-555-0199
0800 123 4567 | 0800-123-4567
Room 007 | Zimmer 7
Chapter IV, verse 12 | Kapitel 4, Vers 12
Louis XIV and Louis XV | Ludwig 14. und Ludwig 15.
12 men and 3 women | zwölf Männer und drei Frauen
二十 | 20
Three people waited for 2 hours | 3个人等了两个小时
-5 °C | −5 °C
5x | 5×
10,5 | 10.5
6.5.2020 | May 6, 2020
Sunday, June 7, 8:00 PM | 日曜日 6月7日 20:00
от 5 до 10 | from 5 to 10
в 7 часов вечера | at 19:00
7 Uhr abends | 19:00
1.000 | 1000
1000 | 1 000
15.000 € and 300 people in 2005 | 15,000 € et 300 personnes en 2005
In 2005, 12 000 people | 2005: 12.000 Leute
3:2 | 3–2
4 x 100 m | 4×100 m
1:30:45 | 1.30.45
COVID-19 | Covid 19
24/7 | 24 / 7
100,200,300 | 100, 200 and 300
May 1 and May 2, 2020 | 1. und 2.5.2020
1 May to 3 June 2020 | 1.5. bis 3.6.2020
from 1 May 2020 to 3 June 2021 and 4 July 2022 | vom 1.5.2020 bis 3.6.2021 und 4.7.2022
the 21st | der 21.
10 km (6 mi) | 10 км (6 миль)
2,5 l | 2.50 l
Q3 2020 | 3. Quartal 2020
8-10 Uhr | 8 a.m. to 10 a.m.
8-20 Uhr | 8 a.m. to 8 p.m.
1 million | 1.000.000
a million | 1.000.000
3. Mai | May the 3rd
10 o’clock | 10.00 Uhr
10:15 | 10 h 15
10:05 | 10 h 05
§ 5 Abs. 2 | Section 5(2)
3,000,000 people | 3 миллиона человек
1,5 млн | 1 500 000
2,5 miljoen | 2,500,000
2,5 milhões | 2.5 millones
3 ล้าน | 3,000,000
٣ ملايين و٥ مليون | 3 and 5 million
٢ مليار | 2,000,000,000
"""
#: Other numbers, or numbers that one side lacks.
DIFFERENT = """
6, 7, 8 and 9 | 6
7 and 8 | 7 und 9
12 345 euros | 12.346 Euro
6:30 | 7:30
6:30 | 6:45
6:30 | 6 Uhr
10.05.2020 | 10.05.2019
10 May 2020 | 12.05.2020
10 May 2020 | 10.05.2002
10.05.2020 | 10.04.2020
10.5. | 11.5.
3月5日 | 3月6日
3月5日 | 4月5日
1.5 | 15
15 | 150
150 | 1500
1,500 | 150
1.50 | 15.0
1,200 | 12,000
1,200 | 120
$19.99 | 199.9
0.5 | 0.05
0.5 | 5
0,5 | 50
5 | 6
5 cars | 50 Autos
3 cars | 15 Autos
12 | 21
1984 | 1948
1,234,567 | 1,234,576
1.2 million | 12 Millionen
120 million | 12億
3만 5000원 | 36,000 won
1億2000万 | 2 million
3万 | 3000
3万 | 300,000
7 p.m. | 20:00
7 p.m. | 18 Uhr
9 a.m. | 10:00
50% | 15%
1st | 2.
10-12 | 10-13
1990-95 | 1990-96
3:2 | 2:0
½ | 1/4
2½ | 2.25
12 345 | 12 346
٣٫٥ | 3.6
٣٥ | 36
1,00,000 | 1,000,000
+49 30 123456 | +49 30 654321
1 2 3 | keine
In 1999 12 cars | 13 Autos im Jahr 1999
5 years | 6年
2 hours | 3時間
2 hours, three people | 3个小时，三个人
5 men in 2010 | 6 Männer im Jahr 2010
1000 | 1
2,000 | 2
7:00 | 8 Uhr
4.5 | 4
4.5 | 5
"""


@pytest.mark.parametrize(("lines", "is_equal"), [(EQUAL, True), (DIFFERENT, False)], ids=["equal", "different"])
def test_equal_numbers_are_recognized(lines, is_equal):
    pairs = [line.split(" | ") for line in lines.strip().split("\n")]
    wrong = [pair for pair in pairs if not has_equal_numbers(*pair) is has_equal_numbers(*pair[::-1]) is is_equal]
    assert not wrong


@pytest.mark.parametrize("text", ["1,11,", "1 ", "9", "1/", "１万"])
def test_long_lines_of_digits_are_compared(text):
    assert has_equal_numbers(500 * text, 500 * text) and not has_equal_numbers(500 * text, "23 45")
