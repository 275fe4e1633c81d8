import struct

import pytest

from keras_transformer.training.curve import write_curve

pytest.importorskip("matplotlib")


@pytest.mark.parametrize(("bleu", "height"), [({}, 480), ({"bleu": 30.0}, 720)])
def test_the_picture_has_its_size(tmp_path, bleu, height):
    validations = [{"step": s, "loss": 1.0 / s, "training_loss": 2.0 / s, "time": 0.0, **bleu} for s in (10, 20)]
    write_curve(validations, tmp_path / "curve.png")
    png = (tmp_path / "curve.png").read_bytes()
    assert png.startswith(b"\x89PNG") and struct.unpack(">2I", png[16:24]) == (840, height)
    assert [path.name for path in tmp_path.iterdir()] == ["curve.png"]
