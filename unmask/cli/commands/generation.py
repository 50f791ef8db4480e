"""`generate`: continuations of prompts, answers, or chats."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from unmask.cli.inputs import (
    answer_in_batches,
    is_terminal_input,
    load_pipeline,
    read_texts,
    read_turns,
)
from unmask.jobs.options.shell.from_dataclass import command, long_flag
from unmask.jobs.options.shell.generate import GenerateOptions, GenerationSettings
from unmask.output import escape_tsv, print_data, print_json, print_line

if TYPE_CHECKING:
    from unmask.generation.speculative import DraftModel
    from unmask.inference.generation import ScoredText
    from unmask.inference.pipeline import Pipeline


class _Generation(GenerateOptions):
    """What is done with a model by the options."""

    @property
    def settings(self) -> dict[str, Any]:
        """The given settings of decoding."""
        every = {f.name: getattr(self, f.name) for f in fields(GenerationSettings)}
        values = {n: v for n, v in every.items() if v is not None and v != ()}
        return values if self.window else {n: v for n, v in values.items() if n != "window"}

    def check(self) -> None:
        """Check options before a model is loaded."""
        from unmask.generation.settings import check_settings

        check_settings(self.settings)
        flags = {f.name: long_flag(f) for f in fields(self)}
        excluded = sorted(self.settings.keys() - {"beams"})
        excluded += ["output_prefix"] if self.output_prefix else []
        excluded += ["draft"] if self.draft is not None else []
        excluded += ["stream"] if self.stream else []
        if self.choice and excluded:
            raise ValueError(
                f"--choice can be combined with --beams only, got {flags[excluded[0]]}"
            )
        if self.draft_tokens is not None and self.draft is None:
            raise ValueError("--draft-tokens needs --draft")
        for name in ("as_json", "n_best", "beams", "samples"):
            if self.stream and (self.as_json if name == "as_json" else name in self.settings):
                raise ValueError(f"--stream cannot be combined with {flags[name]}")
        if self.target_language is not None and self.source_language is None:
            raise ValueError("--target-language needs --source-language")
        self._check_chat(flags)

    def _check_chat(self, flags: Mapping[str, str]) -> None:
        if self.system is not None and not self.chat:
            raise ValueError("--system needs --chat")
        excluded = ("pictures", "choice", "output_prefix", "n_best")
        if self.chat and (given := [name for name in excluded if getattr(self, name)]):
            name = flags.get(given[0], "pictures")
            raise ValueError(f"--chat cannot be combined with {name}")

    def with_inputs(self, pipeline: Pipeline) -> "_Generation":
        """Return the options with what stands after the model as prompts, of a model of texts."""
        if pipeline.preset.reads_pictures or not self.pictures:
            return self
        if files := [name for name in self.pictures if os.path.isfile(name)]:
            raise ValueError(f"{self.model} reads texts, got the file {files[0]!r}: use --input")
        return replace(self, prompt=(*self.pictures, *self.prompt), pictures=())

    def check_pictures(self, pipeline: Pipeline) -> None:
        """Check that there are pictures where the model describes some."""
        if not pipeline.preset.reads_pictures:
            return
        if not self.pictures:
            raise ValueError(f"{self.model} describes pictures: give their files")
        flags = {f.name: long_flag(f) for f in fields(self)}
        of_texts = ("prompt", "input", "draft", "choice", "stream", "source_language")
        if excluded := [flags[name] for name in of_texts if getattr(self, name)]:
            raise ValueError(f"{excluded[0]} is for models that read texts, not pictures")

    def describe(self, pipeline: Pipeline) -> None:
        """Describe pictures, and print a caption for each."""
        from unmask.images.decode import decode_images
        from unmask.images.sources import read_images

        preprocessing = pipeline.loaded_model.preprocessing
        assert preprocessing is not None
        decoded = decode_images(read_images(self.pictures), channels=preprocessing.channels)
        captions = answer_in_batches(
            decoded, lambda some: self._captions(pipeline, [pixels for _, pixels in some])
        )
        for (record, _), candidates in captions:
            if self.as_json:
                best = {"best": [vars(one) for one in candidates]} if self._n_best > 1 else {}
                print_json({"picture": record.location, "text": candidates[0].text, **best})
                continue
            for one in candidates:
                score = (f"{one.score:.4f}",) if self._n_best > 1 else ()
                print_data("\t".join((record.location, *score, escape_tsv(one.text))))

    @property
    def _n_best(self) -> int:
        return self.settings.get("n_best", 1)

    def _captions(self, pipeline: Pipeline, pictures: Sequence[Any]) -> list[list[ScoredText]]:
        """Return the best captions of each picture; the only one has no score."""
        from unmask.inference.generation import ScoredText

        options: dict[str, Any] = self.settings | {"output_prefix": self.output_prefix}
        if self._n_best > 1:
            return pipeline.generate_candidates(pictures, **options)
        return [[ScoredText(text, 0.0)] for text in pipeline.generate(pictures, **options)]

    def answer(self, pipeline: Pipeline, prompts: Sequence[str]) -> None:
        """Answer prompts, and print the answers."""
        continues_prompt = "next_token" in pipeline.preset.objective.loss_terms
        options = self._with_draft(pipeline, {"output_prefix": self.output_prefix})
        if self.choice:
            beams = self.settings.get("beams")
            for prompt in prompts:
                outputs = pipeline.rank_choices(prompt, self.choice, beams=beams)
                self._print_candidates(prompt, outputs, continues_prompt)
        elif self._n_best > 1:
            for prompt, outputs in zip(
                prompts, pipeline.generate_candidates(prompts, **options), strict=True
            ):
                self._print_candidates(prompt, outputs, continues_prompt)
        elif self._should_stream(pipeline, len(prompts)):
            _print_stream(
                prompts[0] if continues_prompt else "", pipeline.stream(prompts[0], **options)
            )
        else:
            for before, after in zip(prompts, pipeline.generate(prompts, **options), strict=True):
                if self.as_json:
                    print_json({"prompt": before, "text": after})
                else:
                    print_data(before + after if continues_prompt else after)
        _report_draft(options.get("draft"))

    def _with_draft(self, pipeline: Pipeline, more: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings with the draft model, if there is one."""
        options: dict[str, Any] = self.settings | dict(more)
        if self.draft is not None:
            draft_model = load_pipeline(self.draft, self.device)
            options["draft"] = pipeline.draft(draft_model, draft_tokens=self.draft_tokens or 4)
        return options

    def answer_turns(self, pipeline: Pipeline) -> None:
        """Answer turns of the user one after another, each after the conversation so far."""
        from unmask.inference.generation import LEFT_OUT

        history = [] if self.system is None else [_message("system", self.system)]
        options, is_asked = self._with_draft(pipeline, {}), not self.prompt and self.input is None
        pipeline.fitting_messages([*history, _message("user", "")], **self.settings)
        turns = read_turns(self.prompt, self.input, self.text_column, self.encoding_errors)
        has_left_out = False
        for turn in turns:
            said = [*history, _message("user", turn)]
            try:
                fitting = pipeline.fitting_messages(said, **self.settings)
            except ValueError as error:
                if not (is_asked and is_terminal_input()):
                    raise
                print_line(f"unmask: {error}", sys.stderr)
                continue
            if len(fitting) < len(said) and not has_left_out:
                print_line(LEFT_OUT, sys.stderr)
                has_left_out = True
            response = self._respond(pipeline, fitting, options)
            if _may_be_kept(pipeline, response):
                history = [*fitting, _message("assistant", response)]
        _report_draft(options.get("draft"))

    def _respond(
        self, pipeline: Pipeline, messages: Sequence[Mapping[str, str]], options: Mapping[str, Any]
    ) -> str:
        """Print the next response, and return it."""
        if self.stream is not False and self._is_plain(pipeline):
            pieces: list[str] = []
            _print_stream("", _recorded(pipeline.stream_chat(messages, **options), pieces))
            return "".join(pieces)
        response = pipeline.chat(messages, **options)
        if self.as_json:
            print_json({"prompt": messages[-1]["content"], "text": response})
        else:
            print_data(response, flush=True)
        return response

    def _is_plain(self, pipeline: Pipeline) -> bool:
        """Whether each text is printed as it is, and known token by token."""
        return not (self.as_json or pipeline.resolve_config(None, self.settings).chooses_text)

    def _should_stream(self, pipeline: Pipeline, n_prompts: int) -> bool:
        if self.stream is None:
            return n_prompts == 1 and sys.stdout.isatty() and self._is_plain(pipeline)
        if self.stream and n_prompts != 1:
            raise ValueError(f"--stream needs exactly one prompt, got {n_prompts:,}")
        return self.stream

    def _print_candidates(
        self, prompt: str, candidates: Sequence[ScoredText], continues_prompt: bool
    ) -> None:
        """Print candidates with scores, the best first."""
        if self.as_json:
            print_json(
                {
                    "prompt": prompt,
                    "text": candidates[0].text,
                    "best": [vars(one) for one in candidates],
                }
            )
            return
        for one in candidates:
            text = prompt + one.text if continues_prompt else one.text
            print_data(f"{one.score:.4f}\t{escape_tsv(text)}")


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _may_be_kept(pipeline: Pipeline, response: str) -> bool:
    """Return whether a response can be read again: not if it spells a special token."""
    from unmask.conversations.encode import check_no_special_tokens
    from unmask.conversations.messages import Message

    turn = Message("assistant", response)
    try:
        check_no_special_tokens(pipeline.tokenizer.input_tokenizer, [turn], "the response")
    except ValueError as error:
        print_line(f"{error}; the exchange is not kept", sys.stderr)
        return False
    return True


def _recorded(pieces: Iterable[str], record: list[str]) -> Iterable[str]:
    """Yield pieces, and add them to a record."""
    for piece in pieces:
        record.append(piece)
        yield piece


def _report_draft(draft: DraftModel | None) -> None:
    """Print how many proposed tokens were accepted."""
    if draft is not None:
        accepted = f"{draft.acceptance_rate:.0%} of {draft.n_drafted:,}"
        print_line(f"draft: {accepted} proposed tokens accepted", sys.stderr)


def _print_stream(prefix: str, pieces: Iterable[str]) -> None:
    """Print text as it is generated; an interruption leaves complete lines."""
    print_data(prefix, end="", flush=True)
    try:
        for piece in pieces:
            print_data(piece, end="", flush=True)
    finally:
        print_data("", flush=True)


@command(GenerateOptions)
def generate(given: Mapping[str, Any]) -> None:
    """Generate text: continuations of prompts, answers, chats, or descriptions of pictures."""
    options = _Generation(**given)
    options.check()
    pipeline = load_pipeline(options.model, options.device)
    options = options.with_inputs(pipeline)
    options.check_pictures(pipeline)
    if options.pictures:
        options.describe(pipeline)
        return
    if options.source_language is not None:
        pipeline = pipeline.with_languages(options.source_language, options.target_language)
    if options.chat:
        options.answer_turns(pipeline)
        return
    prompts = read_texts(
        options.prompt, options.input, options.text_column, options.encoding_errors
    )
    # All at once: samples of a repeated prompt depend on the earlier ones.
    options.answer(pipeline, list(prompts))
