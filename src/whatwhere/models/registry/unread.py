"""Model types that are not read, each with its reason: what their code computes that no description states."""

from collections.abc import Mapping

UNLIKE: Mapping[str, str] = {
    "canary_decoder": "its sinusoids are divided by the root of the number of features",
    "ernie4_5_vl_moe_text": (
        "height and width take turns in all pairs but the last, which time has: no scheme assigns axes so"
    ),
    "fnet": "it has no attention, but a Fourier transform over all tokens",
    "fsmt": "its two vocabularies have token tables of their own, and its fixed positions are kept as a parameter",
    "funnel": "its layers shorten the text by pooling, so that positions of later layers are those of groups of tokens",
    "hunyuan_vl_text": (
        "both features of a pair have coordinates of their own in pictures, which is no rotation: its code splits "
        "doubled frequencies into axes"
    ),
    "idefics": (
        "tokens beyond its vocabulary (additional_vocab_size) are rows of a second table, and it runs with pictures "
        "only"
    ),
    "kyutai_speech_to_text": (
        "its token table has rows of many codebooks besides those of text, and adds a vector of each at every position"
    ),
    "molmo2_text": "its token table has additional_vocab_size rows besides, which its output projection lacks",
    "moonshine_streaming": "positions of its decoder are added to the encoder's outputs, to which no door leads",
    "neomme": (
        "windows of two sizes take turns (per_layer_config), and its two coordinates take turns in pairs of frequencies"
    ),
    "perceiver": "its layers attend among latents, which have no positions of tokens",
    "pi0": "it has two texts, of which one is a plan of movements, and no vocabulary of its own",
    "speecht5": "text and sound enter by encoders and decoders that are exchanged by task, which no key names",
    "t5gemma2": (
        "its decoder attends to itself and to its encoder in one softmax, and windows of its encoder reach one token "
        "further to the right"
    ),
    "unlimited_ocr_text": (
        "its windows move over the tokens that it writes, and keep the whole prompt: no key says what a prompt is"
    ),
    "voxtral_realtime_text": "it adds to each layer what a time makes of it, without which the probe cannot run it",
    "blt": "its bytes are grouped into patches, and it is four Transformers with a configuration of their own each",
    "cpmant": "learned vectors come before each text, and its bias depends on the segments of both",
    "deepseek_v4": "beside a window it attends to keys made of groups of tokens, and rotates values, and outputs back",
    "prophetnet": "the bias of its decoder is a linear map of hidden states, chosen by T5's buckets of the distance",
    "reformer": "its position table joins a table of rows and one of columns, and a hash of queries selects the keys",
}
"""Model types that are not read, and cannot be read as others either -> what they compute that no scheme here does, or
that none of their keys shows."""
