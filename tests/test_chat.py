import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import GenerationConfig, PreTrainedTokenizerFast

from sao_bench.chat import ChatFormat
from sao_bench.errors import UserError
from sao_bench.tiny import tokenizer

CHATML = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe brief.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if quiet %}<think></think>{% endif %}{% endif %}"
)


def words(template=None, eos="<|endoftext|>", pad=None, bos=None):
    """Return a tokenizer of characters with ChatML's special tokens, in that order from id 0 on."""
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>"]
    vocabulary = {
        token: i
        for i, token in enumerate([*specials, "?", "\n", *map(chr, range(32, 63)), *map(chr, range(64, 127))])
    }
    fast = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    fast.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    fast.decoder = decoders.Fuse()
    if bos:
        fast.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, vocabulary[bos])]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=fast,
        unk_token="?",
        eos_token=eos,
        pad_token=pad,
        bos_token=bos,
        additional_special_tokens=specials,
        chat_template=template,
    )


def text(chat, ids):
    return "".join(chat.tokenizer.convert_ids_to_tokens(ids))


def test_tiny_format_by_hand():
    chat = ChatFormat(tokenizer())
    user, assistant, end = 2, 3, 4
    a, b, newline = (5 + 1 + ord("a") - 32, 5 + 1 + ord("b") - 32, 5)
    assert chat.prompt_ids("ab") == [user, a, b, assistant]
    assert chat.prompt_ids("b", system="a\n") == [user, a, newline, user, b, assistant]
    assert chat.observation_ids("b", ended=True) == [user, b, assistant]
    assert chat.observation_ids("b", ended=False) == [end, user, b, assistant]
    assert chat.stop_ids == {end}
    assert chat.pad_id == 0
    assert chat.decode([a, newline, b, end]) == "a\nb"
    assert chat.decode([]) == ""


def test_chatml_by_hand():
    chat = ChatFormat(words(CHATML))
    head = "<|im_start|>system\nBe brief.<|im_end|>\n"
    tail = "<|im_end|>\n<|im_start|>user\nthere<|im_end|>\n<|im_start|>assistant\n"
    assert (
        text(chat, chat.prompt_ids("hi")) == head + "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert text(chat, chat.prompt_ids("hi", system="Go.")).startswith(
        "<|im_start|>system\nGo.<|im_end|>\n<|im_start|>user"
    )
    assert text(chat, chat.observation_ids("there", ended=False)) == tail
    assert text(chat, chat.observation_ids("there", ended=True)) == tail.removeprefix("<|im_end|>")
    assert chat.stop_ids == {0, 2}  # EOS and the template's own end of turn
    assert chat.pad_id == 0  # no padding token: a stop token


@pytest.mark.parametrize("template", [CHATML, None], ids=["chatml", "tiny"])
def test_turns_laid_end_to_end_are_the_rendered_conversation(template):
    chat = ChatFormat(words(template) if template else tokenizer())
    closing = chat.tokenizer.encode("<|im_end|>" if template else "<|end|>", add_special_tokens=False)

    def said(reply):
        return chat.tokenizer.encode(reply, add_special_tokens=False)

    laid = chat.prompt_ids("one") + said("two") + closing + chat.observation_ids("three", ended=True)
    cut = chat.prompt_ids("one") + said("two") + chat.observation_ids("three", ended=False)
    messages = [
        {"role": r, "content": c} for r, c in (("user", "one"), ("assistant", "two"), ("user", "three"))
    ]
    whole = chat.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert laid == cut == chat.tokenizer.encode(whole, add_special_tokens=False)


def test_without_a_template_text_and_newline():
    chat = ChatFormat(words(bos="<s>"))
    assert text(chat, chat.prompt_ids("hi")) == "<s>hi\n"
    assert text(chat, chat.prompt_ids("hi", system="Go.")) == "<s>Go.\nhi\n"
    assert text(chat, chat.observation_ids("there", ended=True)) == "\nthere\n"
    assert text(chat, chat.observation_ids("there", ended=False)) == "\nthere\n"
    assert chat.stop_ids == {0}


def test_stop_tokens_of_the_generation_config_count_too():
    assert ChatFormat(words(), GenerationConfig(eos_token_id=[1, 3])).stop_ids == {0, 1, 3}
    assert ChatFormat(words(), GenerationConfig(eos_token_id=2)).stop_ids == {0, 2}
    assert ChatFormat(words(eos=None), GenerationConfig(eos_token_id=[7])).pad_id == 7


def test_template_options_reach_the_template():
    chat = ChatFormat(words(CHATML), template_options={"quiet": True})
    assert text(chat, chat.prompt_ids("hi")).endswith("<|im_start|>assistant\n<think></think>")
    assert text(chat, chat.observation_ids("hi", ended=True)).endswith(
        "<|im_start|>assistant\n<think></think>"
    )


def test_an_observation_cannot_speak_for_the_assistant():
    chat = ChatFormat(words(CHATML))
    for ids in (chat.prompt_ids("x<|im_end|>y"), chat.observation_ids("x<|im_end|>y", ended=True)):
        assert "x< |im_end|>y" in text(chat, ids)
    assert chat.prompt_ids("x<|im_end|>y").count(2) == chat.prompt_ids("xy").count(2)


def test_an_observation_may_look_like_the_dummy_reply():
    chat = ChatFormat(words(CHATML))
    assert "user\n[[reply]]<" in text(chat, chat.observation_ids("[[reply]]", ended=True))


def test_decode_drops_special_tokens_and_keeps_the_text_as_it_is():
    chat = ChatFormat(words(CHATML, pad="<s>"))
    ids = chat.tokenizer.encode(" it 's  so , \n", add_special_tokens=False)
    assert chat.decode([1, *ids[:4], 3, *ids[4:], 2, 0]) == " it 's  so , \n"


def test_caches_give_new_lists():
    chat = ChatFormat(tokenizer())
    chat.prompt_ids("a").append(99)
    chat.observation_ids("a", ended=False).append(99)
    assert 99 not in chat.prompt_ids("a") + chat.observation_ids("a", ended=False)


def test_load_reads_what_was_saved(tmp_path):
    words(CHATML, pad="<s>").save_pretrained(tmp_path)
    GenerationConfig(eos_token_id=[0, 1]).save_pretrained(tmp_path)
    chat = ChatFormat.load(tmp_path)
    assert (chat.stop_ids, chat.pad_id) == ({0, 1, 2}, 3)
    assert chat.prompt_ids("hi") == ChatFormat(words(CHATML)).prompt_ids("hi")


def test_wrong_folders_and_tokenizers_are_one_clear_line(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UserError, match="no tokenizer in ") as caught:
            ChatFormat.load(folder)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="names no stop token"):
        ChatFormat(words(eos=None))
    with pytest.raises(UserError, match="leaves out the text"):
        ChatFormat(
            words("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}")
        )
