"""Blurring is a convolution; its best linear inverse is Wiener's; answers are verified by it."""

import math
from pathlib import Path

import deblurring
import numpy as np
import pytest
import torch
from deblurring import BLUR, NOISE, SIDE, Blur, blurred, draw, signal_to_noise, verify

BY_SIGMA = {sigma: Blur.gaussian(SIDE, sigma) for sigma in (1.2, BLUR, 1.6, 2.0)}
SHARP = draw(np.random.default_rng(0), 60)


def test_blur_is_a_convolution_with_a_gaussian() -> None:
    point = torch.zeros(1, 1, SIDE, SIDE)
    point[..., 16, 16] = 1
    found = BY_SIGMA[BLUR](point)[0, 0]
    away = torch.arange(SIDE) - 16.0
    square = away[:, None] ** 2 + away[None] ** 2
    density = torch.exp(-square / (2 * BLUR**2)) / (2 * math.pi * BLUR**2)
    torch.testing.assert_close(found, density, rtol=0, atol=1e-4)
    torch.testing.assert_close(BY_SIGMA[BLUR](SHARP).mean((1, 2, 3)), SHARP.mean((1, 2, 3)))


def test_two_blurs_are_one_of_the_sum_of_variances() -> None:
    twice = BY_SIGMA[1.6](BY_SIGMA[1.2](SHARP))
    torch.testing.assert_close(twice, BY_SIGMA[2.0](SHARP), rtol=0, atol=1e-5)


def test_without_noise_the_filter_inverts_the_blur() -> None:
    exact = Blur.gaussian(SIDE, 0.5)
    answer = exact.wiener(torch.tensor(1e12))(exact(SHARP))
    torch.testing.assert_close(answer, SHARP, rtol=0, atol=1e-4)


@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_no_other_ratio_of_signal_to_noise_has_a_smaller_error(factor: float) -> None:
    torch.manual_seed(0)
    blur, ratio = BY_SIGMA[BLUR], signal_to_noise(SHARP, NOISE)
    given = blurred(SHARP, blur)

    def error(scale: float) -> float:
        return float((blur.wiener(scale * ratio)(given) - SHARP).square().mean())

    assert error(1.0) < error(factor)


def test_answers_are_right_if_only_noise_is_left_of_them() -> None:
    torch.manual_seed(0)
    blur = BY_SIGMA[BLUR]
    given = blurred(SHARP, blur)
    truth = verify(SHARP, given, SHARP, blur)
    assert truth.right == 1
    assert truth.left == pytest.approx(1, abs=0.02)
    invisible = torch.zeros(1, 1, SIDE, SIDE)
    invisible[..., ::2] = 0.2
    invisible[..., 1::2] = -0.2
    other = verify(SHARP + invisible, given, SHARP, blur)
    assert other.right == 1, "what blurring takes away cannot be verified"
    assert other.psnr < 20
    for wrong in (given, SHARP.flip(-1), SHARP + 0.02):
        assert verify(wrong, given, SHARP, blur).right < 0.5


def test_pictures_are_drawn_by_their_seed() -> None:
    assert torch.equal(draw(np.random.default_rng(0), 3), SHARP[:3])
    assert SHARP.shape == (60, 1, SIDE, SIDE)
    assert SHARP.min() >= 0
    assert SHARP.max() <= 1
    assert (SHARP.flatten(1).std(1) > 0.01).float().mean() > 0.9


def test_all_steps_of_a_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = deblurring.main(["--steps", "2", "--pictures", "20", "--out", str(tmp_path)])
    assert found["shapes, Wiener filter"].psnr > found["shapes, no model"].psnr
    assert found["shapes, network"].right == 1
    assert {path.name for path in tmp_path.iterdir()} == {"shapes.png", "emoji.png"}
    assert "of the noise left" in capsys.readouterr().out
