"""Pictures a second in masked pretraining, beside a plain torch loop; paired rounds in turns.

    python benchmarks/pictures.py [--pictures 2000] [--rounds 7] [--steps 10] [--batch 64]
        [--device cpu] [--size 32] [--stored 96]

JPEG files of noise-like pictures are made first (`--stored` pixels wide), or `--data FOLDER` names
some. Both sides train the same network (vit-mini, same weights, AdamW, mirrored pictures, 60 % of
the patches hidden) on pictures of `--size` pixels:

- unmask: the batches of `unmask pretrain`, from its store of decoded pictures, and its step;
- plain: a `Dataset` that opens each file with Pillow, resizes and normalizes it with transformers'
  image processor (Pillow's, as ours), a `DataLoader` without workers, and transformers'
  `ViTForMaskedImageModeling`.

`--plain-tensor` makes the plain side as fast as a loop can be without a store: pictures are decoded
once and kept as tensors in memory. Ratios are medians of the rounds'.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unmask.images.reading import PictureOptions, default_preprocessing, open_or_write_store
from unmask.jobs.pretrain.data.pictures import PictureCorpus
from unmask.jobs.pretrain.resolve_options import preset_recipe
from unmask.training import loop
from unmask.training.config import Recipe, apply_changes
from unmask.training.device.distributed import World
from unmask.zoo.catalogue import get_preset


def make_pictures(folder: Path, n: int, edge: int) -> None:
    """Write JPEG files of smooth noise, which compress about as photographs do."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(n):
        small = rng.integers(0, 256, (edge // 8, edge // 8, 3), np.uint8)
        picture = Image.fromarray(small).resize((edge, edge), Image.Resampling.BICUBIC)
        noise = rng.normal(0, 6, (edge, edge, 3))
        pixels = np.clip(np.asarray(picture, np.float32) + noise, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:05d}.jpg", quality=90)


def ours(folder: Path, work: Path, options: argparse.Namespace) -> tuple[Iterator[Any], float, Any]:
    """Return the steps of a run, the seconds that decoding took, and the network."""
    preset, edge = get_preset("vit-mini"), options.size
    preset = replace(preset, architecture=preset.architecture.with_image_size(edge, edge))
    how, began = default_preprocessing((edge, edge)), time.perf_counter()
    store = open_or_write_store([str(folder)], work / "store", PictureOptions(), how)
    seconds = time.perf_counter() - began
    tokens = options.batch * preset.architecture.position.max_positions
    recipe: Recipe = apply_changes(
        preset_recipe("vit-mini"),
        [
            {
                "batch_tokens": tokens, "micro_batch_tokens": tokens, "steps": 10**6,
                "pictures": {"augmentation": {"flip": 0.5}}, "precision": options.precision,
                "optimizer": {"kind": "AdamW"}, "dropout": 0.0, "image_size": [edge, edge],
            }
        ],
    )  # fmt: skip
    world = World(device=torch.device(options.device))
    corpus = PictureCorpus(store=store, preprocessing=how, captions=None, stack=preset.architecture)
    data = corpus.training_data(recipe, preset, preset.objective, 0, options.workers, world)
    model = preset.build().initialize(0).to(world.device)
    run = loop.start_run(recipe, model, data.batches, world=world)
    return iter(loop.train(run)), seconds, model


class PlainPictures(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """Files, opened when they are asked for, or all decoded at first."""

    def __init__(self, folder: Path, edge: int, patches: int, *, keep: bool) -> None:
        import transformers

        self.files = sorted(folder.rglob("*.jpg"))
        self.processor = transformers.ViTImageProcessorPil(size={"height": edge, "width": edge})
        self.patches, self.rng = patches, np.random.default_rng(1)
        self.kept = [self._open(file) for file in self.files] if keep else None

    def _open(self, file: Path) -> Tensor:
        with Image.open(file) as picture:
            done = self.processor(picture.convert("RGB"), return_tensors="pt")
        return done["pixel_values"][0]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        pixels = self._open(self.files[i]) if self.kept is None else self.kept[i]
        if self.rng.random() < 0.5:
            pixels = pixels.flip(-1)
        hidden = torch.zeros(self.patches, dtype=torch.bool)
        hidden[self.rng.permutation(self.patches)[: round(0.6 * self.patches)]] = True
        return pixels, hidden


def plain(folder: Path, options: argparse.Namespace) -> tuple[Iterator[float], float]:
    """Return the steps of a plain loop, and the seconds that decoding in advance took."""
    import transformers

    a = get_preset("vit-mini").architecture.with_image_size(options.size, options.size)
    began = time.perf_counter()
    pictures = PlainPictures(folder, options.size, a.n_patches, keep=options.plain_tensor)
    seconds = time.perf_counter() - began
    config = transformers.ViTConfig(
        hidden_size=a.d_model, num_hidden_layers=a.n_layers, num_attention_heads=a.n_heads,
        intermediate_size=a.d_ff, image_size=options.size, patch_size=a.patch_size,
        encoder_stride=a.patch_size,
    )  # fmt: skip
    model = transformers.ViTForMaskedImageModeling(config).to(options.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    half = options.precision == "bfloat16"

    def steps() -> Iterator[float]:
        while True:
            loader = torch.utils.data.DataLoader(
                pictures, options.batch, shuffle=True, drop_last=True, num_workers=options.workers
            )
            for pixels, hidden in loader:
                pixels, hidden = pixels.to(options.device), hidden.to(options.device)
                context = torch.autocast(options.device, torch.bfloat16) if half else nullcontext()
                with context:
                    loss = model(pixel_values=pixels, bool_masked_pos=hidden).loss
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                yield float(loss)

    return steps(), seconds


def measure(steps: Iterator[Any], n: int, device: str) -> float:
    """Return the seconds of some steps."""
    began = time.perf_counter()
    for _ in range(n):
        next(steps)
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    """Measure both sides in turns."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--stored", type=int, default=96)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--plain-tensor", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = options.data
        if folder is None:
            folder = Path(work) / "pictures"
            make_pictures(folder, options.pictures, options.stored)
        own, own_decoding, _ = ours(folder, Path(work), options)
        theirs, their_decoding = plain(folder, options)
        measure(own, 2, options.device), measure(theirs, 2, options.device)
        rounds = [
            (
                measure(own, options.steps, options.device),
                measure(theirs, options.steps, options.device),
            )
            for _ in range(options.rounds)
        ]
    n = options.batch * options.steps
    print(f"decoding in advance: unmask {own_decoding:.1f} s, plain {their_decoding:.1f} s")
    for name, column in (("unmask", 0), ("plain", 1)):
        print(f"{name:8s} {statistics.median(n / r[column] for r in rounds):8.0f} pictures/s")
    print(f"ratio    {statistics.median(b / a for a, b in rounds):8.2f} (median of {len(rounds)})")


if __name__ == "__main__":
    main()
