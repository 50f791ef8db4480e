"""Show, Attend and Tell: Xu et al. 2015, arXiv:1502.03044.

"Show, Attend and Tell: Neural Image Caption Generation with Visual Attention".
"""

from dataclasses import replace

from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.vision.doubly_stochastic_attention import DoublyStochasticAttention
from unmask.model.backbones.captioning.show_attend_and_tell import (
    AttendingLSTMArchitecture,
    ShowAttendAndTellArchitecture,
)
from unmask.model.exchange.config_mapping import native_config_mapping
from unmask.model.initialize import NormalInit
from unmask.zoo.preset import Paper
from unmask.zoo.vision.show_and_tell import SHOW_AND_TELL_MINI
from unmask.zoo.vision.vision_encoder_decoder import MINI_ENCODER

PAPER = Paper(
    title="Show, Attend and Tell: Neural Image Caption Generation with Visual Attention",
    authors="Xu, Ba, Kiros, Cho, Courville, Salakhutdinov, Zemel, Bengio",
    year=2015,
    arxiv="1502.03044",
)

SHOW_ATTEND_AND_TELL_MINI = replace(
    SHOW_AND_TELL_MINI,
    name="show-attend-and-tell-mini",
    family="show-attend-and-tell",
    paper=PAPER,
    architecture=ShowAttendAndTellArchitecture(
        encoder=MINI_ENCODER,
        decoder=AttendingLSTMArchitecture(
            vocab_size=4_096,
            d_model=512,
            d_ff=512,
            d_annotation=MINI_ENCODER.d_model,
            d_attention=256,
            dropout=0.0,
            initializer=NormalInit(0.05),
        ),
    ),
    heads={
        "language": LanguageModeling(term="next_token", bias=True, tie_embeddings=False),
        "attention": DoublyStochasticAttention(),  # section 4.2.1
    },
    n_parameters=9_305_793,
    config_mapping=native_config_mapping("show-attend-and-tell", ShowAttendAndTellArchitecture),
    note="With soft attention (section 4.2); sizes of the LSTM are those of Show and Tell. "
    "Annotation vectors are of 64 patches, by a Vision Transformer that is trained with the LSTM, "
    "in the paper of 196 places, by a pretrained convolutional network (VGG); tokens are byte "
    "pairs, there words.",
)

PRESETS = (SHOW_ATTEND_AND_TELL_MINI,)
