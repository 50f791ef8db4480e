"""A small convolutional network on some labeled pictures, beside `unmask finetune` on the same.

    python benchmarks/few_labels.py --train train-images-idx3-ubyte.gz
        --test t10k-images-idx3-ubyte.gz --rows 500 [--seeds 3] [--steps 1500] [--flip 0.5]
        [--device cpu] [--features pixels RUN random:RUN --pooling mean]

The network: 3 x 3 convolutions of 32, 64 and 128 channels with batch normalization, each followed
by 2 x 2 max-pooling, then the mean over places and a linear map; AdamW with a cosine schedule. The
rows are those of `unmask finetune --rows N`: drawn after every tenth picture of a label is held
out. Test accuracy after the last step, mean and standard deviation over seeds.

With `--features`, ridge regression instead, on pixels or on the vectors of a network that is not
trained further: of a run, or of random weights in its place. The weight of the penalty is that of
the best leave-one-out accuracy on the rows.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import unmask
from unmask.finetuning.data.read_data import sample_rows
from unmask.finetuning.data.read_pictures import picture_examples
from unmask.images.preprocessing import ImagePreprocessing
from unmask.images.sources import read_images
from unmask.images.store import ImageStore, write_images
from unmask.tasks.task import TaskExample, split_dev


def network(channels: int, classes: int) -> nn.Module:
    """Build the network."""
    layers: list[nn.Module] = []
    for before, after in ((channels, 32), (32, 64), (64, 128)):
        layers += [
            nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.MaxPool2d(2),
        ]  # fmt: skip
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes))


def tensors(
    items: list[TaskExample], how: ImagePreprocessing, labels: list[str]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the pixels and the numbers of the labels."""
    stores = {id(item.picture.store): item.picture.store for item in items if item.picture}
    (store,) = stores.values()
    pixels = store.pixels([item.picture.index for item in items if item.picture])
    numbers = [labels.index(str(item.label)) for item in items]
    return torch.from_numpy(how.normalize(pixels)), torch.tensor(numbers)


def accuracy(
    options: argparse.Namespace,
    seed: int,
    train: tuple[torch.Tensor, torch.Tensor],
    test: tuple[torch.Tensor, torch.Tensor],
) -> float:
    """Train a network and return its accuracy on the test pictures."""
    torch.manual_seed(seed)
    pixels, labels = (x.to(options.device) for x in train)
    model = network(pixels.shape[1], int(labels.max()) + 1).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    rng = np.random.default_rng(seed)
    for _ in range(options.steps):
        at = torch.from_numpy(rng.integers(0, len(labels), options.batch)).to(options.device)
        some = pixels[at]
        if rng.random() < options.flip:
            some = some.flip(-1)
        loss = functional.cross_entropy(model(some), labels[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        right = [
            (model(x.to(options.device)).argmax(-1).cpu() == y).sum().item()
            for x, y in zip(test[0].split(500), test[1].split(500), strict=True)
        ]
    return 100 * sum(right) / len(test[1])


def features(name: str, pooling: str, pixels: torch.Tensor) -> torch.Tensor:
    """Return a vector for each picture [n c h w] of numbers from -1 to 1."""
    if name == "pixels":
        return pixels.flatten(1).double()
    pipeline = unmask.load(name.removeprefix("random:"))
    if name.startswith("random:"):
        pipeline.model.initialize(0)
    plain = ((pixels + 1) * 127.5).round().to(torch.uint8).movedim(1, -1).numpy()
    return torch.from_numpy(pipeline.embed_pictures([*plain], pooling=pooling)).double()


def ridge_accuracy(
    train: tuple[torch.Tensor, torch.Tensor], test: tuple[torch.Tensor, torch.Tensor]
) -> float:
    """Return the test accuracy of ridge regression on standardized vectors."""
    mean, std = train[0].mean(0), train[0].std(0) + 1e-6
    x, y = ((vectors - mean) / std for vectors in (train[0], test[0]))
    labels = train[1]
    wanted = functional.one_hot(labels).double()
    wanted -= (center := wanted.mean(0))
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    best, accuracy_of_best = torch.empty(0), -1.0
    for penalty in torch.logspace(-1, 5, 13, dtype=torch.float64):
        share = s.square() / (s.square() + penalty)
        leverage = (u.square() * share).sum(1, keepdim=True)
        left_out = ((u * share) @ (u.T @ wanted) - leverage * wanted) / (1 - leverage)
        found = ((left_out + center).argmax(1) == labels).double().mean().item()
        if found > accuracy_of_best:
            best = (v.T * (s / (s.square() + penalty))) @ (u.T @ wanted)
            accuracy_of_best = found
    return 100 * ((y @ best + center).argmax(1) == test[1]).double().mean().item()


def open_store(path: Path, folder: Path, how: ImagePreprocessing) -> ImageStore:
    """Decode the pictures of a source."""
    return write_images(read_images(path), folder, how)


def main() -> None:
    """Train each seed and print the accuracies."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--flip", type=float, default=0.0)
    parser.add_argument("--channels", type=int, default=1)
    parser.add_argument("--size", type=int, default=28)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--features", nargs="+", metavar="pixels|RUN|random:RUN")
    parser.add_argument("--pooling", default="mean")
    options = parser.parse_args()
    half = (0.5,) * options.channels
    size = (options.size, options.size)
    how = ImagePreprocessing(resize=size, channels=options.channels, mean=half, std=half)
    with tempfile.TemporaryDirectory() as folder:
        stores = [
            open_store(path, Path(folder) / name, how)
            for path, name in ((options.train, "train"), (options.test, "test"))
        ]
        items = picture_examples(stores[0], str(options.train))
        labels = sorted({str(item.label) for item in items})
        kept, _ = split_dev(items, location=str(options.train))
        kept = sample_rows(kept, options.rows) if options.rows < len(kept) else kept
        train = tensors(list(kept), how, labels)
        test = tensors(picture_examples(stores[1], str(options.test)), how, labels)
        if options.features:
            for name in options.features:
                both = [(features(name, options.pooling, x), y) for x, y in (train, test)]
                found = ridge_accuracy(both[0], both[1])
                print(f"{name}, {len(train[1]):,} pictures: test accuracy {found:.1f}")
            return
        found = [accuracy(options, seed, train, test) for seed in range(options.seeds)]
    spread = statistics.stdev(found) if len(found) > 1 else 0.0
    n = sum(p.numel() for p in network(options.channels, len(labels)).parameters())
    print(
        f"cnn, {n:,} parameters, {len(train[1]):,} pictures: test accuracy "
        f"{statistics.mean(found):.1f} ± {spread:.1f} ({', '.join(f'{x:.1f}' for x in found)})"
    )


if __name__ == "__main__":
    main()
