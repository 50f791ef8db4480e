"""Show and Tell: Vinyals et al. 2015, arXiv:1411.4555.

"Show and Tell: A Neural Image Caption Generator".
"""

from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.backbones.captioning.show_and_tell import ShowAndTellArchitecture
from unmask.model.backbones.recurrent import RecurrentArchitecture
from unmask.model.exchange.config_mapping import native_config_mapping
from unmask.model.exchange.weight_names import NATIVE_WEIGHT_NAMES
from unmask.model.initialize import NormalInit
from unmask.objectives.published import CAUSAL_LM
from unmask.tokenizers.spec import GPT2 as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE
from unmask.zoo.encoders.bert_family.bert import MINI_TRAINING
from unmask.zoo.preset import Paper, Published
from unmask.zoo.vision.vision_encoder_decoder import MINI_ENCODER

PAPER = Paper(
    title="Show and Tell: A Neural Image Caption Generator",
    authors="Vinyals, Toshev, Bengio, Erhan",
    year=2015,
    arxiv="1411.4555",
)

SHOW_AND_TELL_MINI = Published(
    name="show-and-tell-mini",
    family="show-and-tell",
    paper=PAPER,
    architecture=ShowAndTellArchitecture(
        encoder=MINI_ENCODER,
        decoder=RecurrentArchitecture(
            vocab_size=4_096,
            d_model=512,  # section 4.3.1, embeddings and LSTM
            n_layers=1,
            d_ff=512,
            causal=True,
            dropout=0.0,
            initializer=NormalInit(0.05),
        ),
    ),
    heads={"language": LanguageModeling(term="next_token", bias=True, tie_embeddings=False)},
    classification_head=None,
    pooling="first",
    objective=CAUSAL_LM,
    tokenizer=TokenizerSpec(ByteBPE(4_096), FRAME),
    sequence_length=64,
    batch_tokens=1_024,
    learning_rate=1e-3,
    training_options=MINI_TRAINING,
    n_parameters=8_272_064,
    weight_names=NATIVE_WEIGHT_NAMES,
    config_mapping=native_config_mapping("show-and-tell", ShowAndTellArchitecture),
    note="Size of embeddings and LSTM as in the paper. Pictures are read by a Vision Transformer "
    "that is trained with the LSTM, in the paper by a pretrained convolutional network (GoogLeNet);"
    " tokens are byte pairs, there words that occur five times; there is no dropout.",
)

PRESETS = (SHOW_AND_TELL_MINI,)
