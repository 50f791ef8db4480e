"""Pictures that were blurred, made sharp again: patches in, patches out.

    python examples/deblurring.py                # a minute: learn, verify, runs/deblurring/*.png
    python examples/deblurring.py --steps 3000 --seed 1

To blur a picture is easy, to find the picture that was blurred is hard: what blurring takes away is
below the noise. Pictures of a few shapes are drawn, blurred and given a little noise; a Vision
Transformer that reads the patches of the best linear answer (Wiener 1949) learns to change them. An
answer is verified by blurring it again: it is right if nothing but noise is left of the difference
from what was given. Its distance from the true picture is shown beside it, and so are two answers
without a model: the blurred picture itself, and that linear one, which knows the noise and the mean
spectrum of the shapes.
"""

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.heads.model import Model
from unmask.images.drawing import to_png
from unmask.model.architecture import PRE_NORM
from unmask.model.backbones.vision_transformer import VisionArchitecture, picture_batch
from unmask.model.initialize import NormalInit
from unmask.model.layers.embeddings.patches import join_patches
from unmask.model.positions.grid import GridPositions
from unmask.training.schedules import Linear

SIDE, PATCH = 32, 4
BLUR = 1.5
"""Standard deviation of the Gaussian that pictures are blurred with, in pixels."""
NOISE = 0.01
"""Standard deviation of what is added then; black is 0 and white is 1."""
RIGHT = 1.1
"""An answer is right if the root mean square of what is left is at most so many times the noise:
of noise alone on 32 x 32 pixels it is more three times in a million."""
ARCHITECTURE = VisionArchitecture(
    d_model=96, n_layers=3, n_heads=4, d_ff=384, patch_size=PATCH, n_channels=1,
    position=GridPositions(SIDE // PATCH, SIDE // PATCH), norm_placement=PRE_NORM, final_norm=True,
    dropout=0.0, initializer=NormalInit(0.05),
)  # fmt: skip
Pictures = Float[Tensor, "b 1 h w"]
Filter = Callable[[Tensor], Tensor]


def draw(rng: np.random.Generator, n: int, samples: int = 3) -> Pictures:
    """Draw pictures of two to five ellipses, boxes and bars, each of one gray, over each other.

    The edges are smooth: a pixel is the mean of `samples` x `samples` points.
    """
    axis = (np.arange(SIDE * samples) + 0.5) / samples
    y, x = axis[:, None], axis[None, :]
    out = np.empty((n, 1, SIDE, SIDE), np.float32)
    for i in range(n):
        fine = np.full((SIDE * samples,) * 2, rng.random())
        for _ in range(rng.integers(2, 6)):
            (cy, cx), angle = rng.uniform(0, SIDE, 2), rng.uniform(0, math.pi)
            across = (x - cx) * math.cos(angle) + (y - cy) * math.sin(angle)
            along = (y - cy) * math.cos(angle) - (x - cx) * math.sin(angle)
            (a, b), kind = rng.uniform(2, 10, 2), rng.integers(3)
            if kind == 0:
                inside = (across / a) ** 2 + (along / b) ** 2 < 1
            elif kind == 1:
                inside = (abs(across) < a) & (abs(along) < b)
            else:
                inside = (abs(across) < a / 4) & (abs(along) < 2 * b)
            fine[inside] = rng.random()
        out[i, 0] = fine.reshape(SIDE, samples, SIDE, samples).mean((1, 3))
    return torch.from_numpy(out)


@dataclass(frozen=True)
class Blur:
    """The easy direction: each frequency is multiplied; at its edges a picture goes round."""

    transfer: Float[Tensor, "h f"]
    """The factor of each frequency."""

    @classmethod
    def gaussian(cls, side: int, sigma: float) -> "Blur":
        """Return the blur by a Gaussian of this standard deviation."""
        rows, columns = torch.fft.fftfreq(side), torch.fft.rfftfreq(side)
        square = rows[:, None] ** 2 + columns[None] ** 2
        return cls(torch.exp(-2 * (math.pi * sigma) ** 2 * square))

    def __call__(self, pictures: Pictures) -> Pictures:
        """Blur pictures."""
        return _multiply(pictures, self.transfer)

    def wiener(self, signal_to_noise: Float[Tensor, "..."]) -> Filter:
        """Return the linear filter with the least squared error.

        At a ratio s of signal to noise, in powers, it multiplies by k / (k^2 + 1 / s).
        """
        back = self.transfer / (self.transfer**2 + 1 / signal_to_noise)
        return lambda given: _multiply(given, back)


def _multiply(pictures: Pictures, factors: Float[Tensor, "h f"]) -> Pictures:
    return torch.fft.irfft2(torch.fft.rfft2(pictures) * factors, s=pictures.shape[-2:])


def signal_to_noise(pictures: Pictures, noise: float) -> Float[Tensor, "h f"]:
    """Return the mean power of pictures by frequency, divided by that of the noise."""
    power = torch.fft.rfft2(pictures, norm="ortho").abs().square().mean((0, 1))
    return power / noise**2


class Deblurrer(nn.Module):
    """Blurred pictures -> sharp ones: the filter's answer, changed patch by patch, and a step back.

    The step adds to an answer x what a filter makes of the difference y - blur(x): where the blur
    keeps a frequency, the given picture y decides, elsewhere the network.
    """

    def __init__(self, blur: Blur, linear: Filter, seed: int) -> None:
        super().__init__()
        self.blur, self.linear, self.back = blur, linear, blur.wiener(torch.tensor(10.0))
        self.backbone = Model(ARCHITECTURE, heads={}).initialize(seed).backbone
        self.out = nn.Linear(ARCHITECTURE.d_model, ARCHITECTURE.patch_width)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, given: Pictures) -> Pictures:
        """Return the sharp pictures."""
        first = self.linear(given)
        hidden = self.backbone(picture_batch(4 * first - 2, ARCHITECTURE))[:, 1:]
        grid = ARCHITECTURE.position
        answer = first + join_patches(self.out(hidden), PATCH, grid.rows, grid.columns)
        return answer + self.back(given - self.blur(answer))


def learn(
    blur: Blur,
    linear: Filter,
    *,
    steps: int,
    seed: int,
    batch: int = 32,
    learning_rate: float = 2e-3,
) -> Deblurrer:
    """Train a network on pictures that are drawn as it goes: none is seen twice."""
    torch.manual_seed(seed)
    rng, model = np.random.default_rng((seed, 1)), Deblurrer(blur, linear, seed)
    optimizer = torch.optim.AdamW(model.parameters(), learning_rate, weight_decay=0.01)
    schedule, started = Linear(warmup=0.1), time.perf_counter()
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * schedule.factor(step, steps)
        sharp = draw(rng, batch)
        loss = (model(blurred(sharp, blur)) - sharp).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0 or step == steps:
            seconds = time.perf_counter() - started
            print(
                f"\rstep {step:,} of {steps:,}: mean error {loss.item():.4f}, {seconds:.0f} s",
                end="",
            )
    print()
    return model.eval()


def blurred(sharp: Pictures, blur: Blur) -> Pictures:
    """Blur pictures and add noise, of torch's generator."""
    return blur(sharp) + NOISE * torch.randn_like(sharp)


@dataclass(frozen=True)
class Verdict:
    """What is known of some answers."""

    right: float
    """Share of those whose blur is the given picture but for noise."""
    left: float
    """Root mean square of the difference of their blur from the given, in parts of the noise."""
    psnr: float
    """Mean peak signal-to-noise ratio with the true picture, in dB."""

    def __str__(self) -> str:
        return f"{self.right:6.1%} right, {self.left:5.2f} of the noise left, {self.psnr:5.2f} dB"


def verify(answers: Pictures, given: Pictures, sharp: Pictures, blur: Blur) -> Verdict:
    """Blur answers again, and compare them with what was given; then look at the truth."""
    left = (blur(answers) - given).square().mean((1, 2, 3))
    error = (answers.clamp(0, 1) - sharp).square().mean((1, 2, 3))
    return Verdict(
        right=float((left.sqrt() <= RIGHT * NOISE).float().mean()),
        left=float(left.mean().sqrt() / NOISE),
        psnr=float((-10 * error.log10()).mean()),
    )


def bundled_emoji() -> Pictures:
    """Return the bundled emoji of the test split in gray: pictures of another kind."""
    from unmask.images.decode import decode_images
    from unmask.images.records import ImageColumns
    from unmask.images.sources import read_images

    records = read_images("demo:emoji", ImageColumns(where={"split": "test"}))
    pixels = np.stack([x for _, x in decode_images(records, channels=1)])
    return torch.from_numpy(pixels).movedim(-1, 1).float() / 255


def write_page(rows: Sequence[Pictures], path: Path, n: int = 12) -> None:
    """Draw some pictures of each row below each other, four times as large."""
    sheet = torch.cat([torch.cat(list(row[:n].clamp(0, 1)), -1) for row in rows], -2)
    pixels = (255 * sheet).round().byte().repeat_interleave(4, 1).repeat_interleave(4, 2)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_png(pixels.movedim(0, -1).numpy()))


@torch.no_grad()
def main(given_arguments: Sequence[str] | None = None) -> Mapping[str, Verdict]:
    """Learn, and verify the answers to new pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--pictures", type=int, default=500, help="of shapes that are verified")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/deblurring"))
    args = parser.parse_args(given_arguments)
    blur = Blur.gaussian(SIDE, BLUR)
    usual = draw(np.random.default_rng((args.seed, 2)), 500)
    linear = blur.wiener(signal_to_noise(usual, NOISE))
    with torch.enable_grad():
        model = learn(blur, linear, steps=args.steps, seed=args.seed)
    tests = {"shapes": draw(np.random.default_rng((args.seed, 3)), args.pictures)}
    tests["emoji"] = bundled_emoji()
    found: dict[str, Verdict] = {}
    for name, sharp in tests.items():
        given = blurred(sharp, blur)
        answers = {"no model": given, "Wiener filter": linear(given), "network": model(given)}
        for how, answer in answers.items():
            found[f"{name}, {how}"] = verdict = verify(answer, given, sharp, blur)
            print(f"{name:7} {how:14} {verdict}")
        write_page([*answers.values(), sharp], args.out / f"{name}.png")
    return found


if __name__ == "__main__":
    main()
