/* `Words`: the ids of a plain text, word by word. It remembers the ids of words that the fast tokenizer encoded before.

   The tokenizer splits a text into words by rules of its own, and encodes each by itself. Here are the same rules, for
   the characters whose class is sure. Whatever is not sure is left to the tokenizer, so the ids are always the same. */
#include "native.h"

#define PLANE 0x10000   /* code points that have a class */
#define KEY_BYTES 32    /* of a word, and in the last one its length */
#define MOST_IDS 15     /* of a word that is remembered, each below 2^16 */
#define SLOTS (1 << 16) /* words that are remembered, at most: 4 MB */
#define WAYS 4          /* slots in which a word may be */
#define LINE 64         /* bytes that come from memory at a time: one word */
#define AHEAD 32        /* words whose slots are fetched ahead of their ids */
#define MOST_MISSES 16  /* words of one text that are asked for */
#define TOO_MANY UINT16_MAX
#define FIRST_TEXTS 8   /* are left to the tokenizer: to find out whether it splits texts like this takes longer */

enum { UNKNOWN, UNSURE, LETTER, DIGIT, SPACE, WHITE, MARK }; /* classes of characters; `classify` in Python has them, too */

typedef struct {
    uint64_t key[KEY_BYTES / 8];
    uint16_t ids[MOST_IDS], count; /* no word is here if the count is 0 */
} Entry;

typedef struct {
    PyObject_HEAD
    PyObject *reader, *encode, *classify, *splits_alike;
    int is_sure; /* that the tokenizer splits texts like this: 1, or -1 if it does not, or 0 before that was asked */
    Py_ssize_t texts;
    unsigned char *classes; /* (PLANE,) */
    void *room;             /* where the entries are */
    Entry *entries;         /* (SLOTS,) */
} Words;

typedef struct { /* a text, and how far it was read */
    const unsigned char *text;
    Py_ssize_t size, at;
    uint32_t point; /* the character whose class was asked for last */
} Scan;

typedef struct {
    uint64_t key[KEY_BYTES / 8];
    Py_ssize_t at, end, slot;
} Word;

static uint64_t masks[KEY_BYTES][KEY_BYTES / 8]; /* which bytes belong to a word of so many */

/* --- where words end */

INLINE unsigned find_class(const Words *self, Scan *scan, Py_ssize_t at, Py_ssize_t *next)
{
    const unsigned char *text = scan->text + at;
    unsigned found;
    if (*text < 0x80) {
        *next = at + 1;
        return self->classes[*text];
    }
    if (*text >= 0xF0) return UNSURE;
    if (*text >= 0xE0) { /* Python's UTF-8 is always whole */
        scan->point = (text[0] & 0x0Fu) << 12 | (text[1] & 0x3Fu) << 6 | (text[2] & 0x3Fu);
        *next = at + 3;
    } else {
        scan->point = (text[0] & 0x1Fu) << 6 | (text[1] & 0x3Fu);
        *next = at + 2;
    }
    found = self->classes[scan->point];
    return found;
}

/* The end of 's, 't, 'm, 'd, 're, 've or 'll; 0 for anything else. */
static Py_ssize_t end_contraction(const Scan *scan, Py_ssize_t at)
{
    const unsigned char *text = scan->text + at;
    Py_ssize_t left = scan->size - at;
    if (left > 1 && (text[1] == 's' || text[1] == 't' || text[1] == 'm' || text[1] == 'd')) return at + 2;
    if (left > 2 && ((text[1] == 'l' && text[2] == 'l') || (text[2] == 'e' && (text[1] == 'r' || text[1] == 'v'))))
        return at + 3;
    return 0;
}

/* The beginnings of the tokenizer's own marks, such as <|im_end|>, which are tokens wherever they stand. */
static int is_special(const Scan *scan, Py_ssize_t at)
{
    static const char *const beginnings[] = {"<|", "<repo", "<file", "<gh_", "<issue", "<jupyter", "<empty_"};
    size_t i;
    if (scan->text[at] != '<') return 0;
    for (i = 0; i < sizeof(beginnings) / sizeof(*beginnings); i++) {
        size_t length = strlen(beginnings[i]);
        if (length <= (size_t)(scan->size - at) && memcmp(scan->text + at, beginnings[i], length) == 0) return 1;
    }
    return 0;
}

/* The end of the word that begins at `scan->at`; -1 where a class is unsure, -2 where it is not known.
   The rule of the tokenizer, where each digit stands alone:
   's|'t|'re|'ve|'m|'ll|'d| ?letters| ?marks|white space that nothing follows|white space */
static Py_ssize_t end_word(const Words *self, Scan *scan)
{
    Py_ssize_t at = scan->at, next = at, begin;
    unsigned first = find_class(self, scan, at, &next), kind = first;
    if (first == SPACE && next < scan->size) {
        begin = next;
        kind = find_class(self, scan, next, &next);
        if (kind == DIGIT || kind == SPACE || kind == WHITE) {
            kind = SPACE;
            next = begin;
        } else {
            at = begin;
        }
    } else if (first == MARK && scan->text[at] == '\'') {
        Py_ssize_t end = end_contraction(scan, at);
        if (end) return end;
    }
    if (kind == DIGIT) return next;
    if (kind == LETTER || kind == MARK) {
        unsigned more = kind;
        while (more == kind) {
            if (kind == MARK && is_special(scan, at)) return -1;
            at = next;
            if (at >= scan->size) return at;
            more = find_class(self, scan, at, &next);
        }
        return more == UNKNOWN ? -2 : more == UNSURE ? -1 : at;
    }
    if (kind == SPACE || kind == WHITE) {
        unsigned more = kind;
        begin = scan->at;
        at = next;
        while (at < scan->size) {
            more = find_class(self, scan, at, &next);
            if (more != SPACE && more != WHITE) break;
            at = next;
        }
        if (at < scan->size && more == UNKNOWN) return -2;
        if (at < scan->size && more == UNSURE) return -1;
        return at == scan->size || more == DIGIT || at - begin == 1 ? at : at - 1; /* white space is one byte each */
    }
    return kind == UNKNOWN ? -2 : -1;
}

/* --- words that are remembered */

/* The key of a word from its place in the text, and the first of its slots. */
INLINE void find_slot(const unsigned char *text, Py_ssize_t size, Word *word)
{
    const Py_ssize_t bytes = word->end - word->at;
    uint64_t *key = word->key, hashed;
    int i;
    if (word->at + KEY_BYTES <= size) {
        memcpy(key, text + word->at, KEY_BYTES);
        for (i = 0; i < KEY_BYTES / 8; i++) key[i] &= masks[bytes][i];
    } else {
        memset(key, 0, KEY_BYTES);
        memcpy(key, text + word->at, (size_t)bytes);
    }
    ((unsigned char *)key)[KEY_BYTES - 1] = (unsigned char)bytes;
    hashed = (key[0] ^ key[2] * 0x9E3779B97F4A7C15u) * 0xC2B2AE3D27D4EB4Fu;
    hashed ^= (key[1] ^ key[3] * 0xD6E8FEB86659FD93u) * 0x9E3779B97F4A7C15u;
    hashed ^= hashed >> 32;
    word->slot = (Py_ssize_t)((hashed * 0xD6E8FEB86659FD93u) >> 40) & (SLOTS - WAYS);
}

INLINE const Entry *find_entry(const Words *self, const Word *word)
{
    const Entry *entry = self->entries + word->slot, *end = entry + WAYS;
    for (; entry < end && entry->count; entry++)
        if (entry->key[0] == word->key[0] && entry->key[1] == word->key[1] && entry->key[2] == word->key[2] &&
            entry->key[3] == word->key[3])
            return entry;
    return NULL;
}

/* Put a word into the first of its slots. The others move on by one, and the last is forgotten. */
static void remember(Words *self, const Word *word, const uint32_t *ids, Py_ssize_t count)
{
    Entry *first = self->entries + word->slot, *last = first;
    Py_ssize_t i;
    if (count < 1 || find_entry(self, word) != NULL) return; /* another thread may have asked, too */
    while (last->count && last < first + WAYS - 1) last++;
    for (; last > first; last--) *last = last[-1];
    memcpy(first->key, word->key, sizeof(first->key));
    first->count = count <= MOST_IDS ? (uint16_t)count : TOO_MANY;
    for (i = 0; i < count && first->count != TOO_MANY; i++) {
        if (ids[i] > UINT16_MAX) first->count = TOO_MANY;
        else first->ids[i] = (uint16_t)ids[i];
    }
}

/* --- asking Python */

/* Ask for the class of a character; -1 with an error. */
static int ask_class(Words *self, uint32_t point)
{
    PyObject *found = PyObject_CallFunction(self->classify, "I", (unsigned)point);
    long kind = found == NULL ? -1 : PyLong_AsLong(found);
    Py_XDECREF(found);
    if (PyErr_Occurred()) return -1;
    self->classes[point] = kind > UNKNOWN && kind <= MARK ? (unsigned char)kind : UNSURE;
    return 0;
}

/* Whether the tokenizer splits texts like this; -1 with an error. */
static int may_split(Words *self)
{
    PyObject *answer;
    int found;
    if (self->is_sure) return self->is_sure > 0;
    if (self->texts++ < FIRST_TEXTS) return 0;
    answer = PyObject_CallFunctionObjArgs(self->splits_alike, NULL);
    found = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (found >= 0) self->is_sure = found ? 1 : -1;
    return found;
}

/* Ask the tokenizer for the ids of a word, which are at most as many as its bytes; -1 with an error. */
static Py_ssize_t ask_word(Words *self, const unsigned char *text, const Word *word, uint32_t *out)
{
    PyObject *one = PyUnicode_DecodeUTF8((const char *)text + word->at, word->end - word->at, NULL);
    PyObject *words = one == NULL ? NULL : PyList_New(1), *encoded;
    Py_ssize_t count = -1;
    Numbers ids;
    if (words == NULL) {
        Py_XDECREF(one);
        return -1;
    }
    PyList_SetItem(words, 0, one);
    encoded = PyObject_CallFunctionObjArgs(self->encode, words, Py_False, NULL);
    Py_DECREF(words);
    if (encoded == NULL) return -1;
    if (PyTuple_Check(encoded) && read_numbers(PyTuple_GetItem(encoded, 0), "I", 1, 0, &ids) == 0) {
        if (ids.rows <= word->end - word->at) {
            count = ids.rows;
            memcpy(out, ids.view.buf, sizeof(uint32_t) * (size_t)count);
            remember(self, word, out, count);
        }
        release_numbers(&ids);
    }
    Py_DECREF(encoded);
    if (count < 0 && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the tokenizer gave other than the ids of a word");
    return count;
}

/* --- texts */

/* The next words, whose slots are fetched; -1 where the text is left to the tokenizer, -2 with an error. */
static Py_ssize_t split(Words *self, Scan *scan, Word *words)
{
    Py_ssize_t n = 0;
    while (n < AHEAD && scan->at < scan->size) {
        Word *word = words + n;
        Py_ssize_t end = end_word(self, scan);
        if (end == -2) {
            if (ask_class(self, scan->point) < 0) return -2;
            continue;
        }
        if (end < 0 || end - scan->at >= KEY_BYTES) return -1;
        word->at = scan->at;
        word->end = scan->at = end;
        find_slot(scan->text, scan->size, word);
        PREFETCH(self->entries + word->slot);
        n++;
    }
    return n;
}

Py_ssize_t encode_words(PyObject *given, PyObject *text, uint32_t *ids, Py_ssize_t room)
{
    Words *self = (Words *)given;
    Word words[AHEAD];
    Scan scan = {NULL, 0, 0, 0};
    Py_ssize_t count = 0, misses = 0, n, i, j;
    int may = may_split(self);
    if (may <= 0) return may < 0 ? -2 : -1;
    scan.text = (const unsigned char *)PyUnicode_AsUTF8AndSize(text, &scan.size);
    if (scan.text == NULL) return -2;
    if (scan.size > room) return -1;
    while (scan.at < scan.size) {
        if ((n = split(self, &scan, words)) < 0) return n;
        for (i = 0; i < n; i++) {
            const Entry *entry = find_entry(self, words + i);
            if (entry == NULL) {
                Py_ssize_t found = misses++ < MOST_MISSES ? ask_word(self, scan.text, words + i, ids + count) : 1;
                if (found < 0 || misses > MOST_MISSES) return found < 0 ? -2 : -1;
                count += found;
                continue;
            }
            if (entry->count == TOO_MANY) return -1;
            for (j = 0; j < entry->count; j++) ids[count + j] = entry->ids[j];
            count += entry->count;
        }
    }
    return count;
}

/* encode(text): the ids as bytes; None for a text that must be examined, or that is left to the tokenizer. */
static PyObject *encode(Words *self, PyObject *text)
{
    uint32_t ids[MOST_BYTES];
    int plain = read_plain(self->reader, text);
    Py_ssize_t count = plain > 0 ? encode_words((PyObject *)self, text, ids, MOST_BYTES) : plain < 0 ? -2 : -1;
    if (count == -2) return NULL;
    if (count < 0) Py_RETURN_NONE;
    return PyByteArray_FromStringAndSize((const char *)ids, count * (Py_ssize_t)sizeof(uint32_t));
}

/* --- the type */

static void delete(Words *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_XDECREF(self->reader);
    Py_XDECREF(self->encode);
    Py_XDECREF(self->classify);
    Py_XDECREF(self->splits_alike);
    free(self->room);
    free(self->classes);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    Words *self = (Words *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0); /* all zeros */
    PyObject *reader, *encode, *classify, *splits_alike;
    uint32_t point;
    int failed;
    (void)named;
    if (self == NULL) return NULL;
    if (!PyArg_ParseTuple(arguments, "OOOO", &reader, &encode, &classify, &splits_alike) || !is_reader(reader)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "expected a Reader");
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    Py_INCREF(self->reader = reader);
    Py_INCREF(self->encode = encode);
    Py_INCREF(self->classify = classify);
    Py_INCREF(self->splits_alike = splits_alike);
    failed = (self->classes = calloc(PLANE, 1)) == NULL || (self->room = calloc(SLOTS * sizeof(Entry) + LINE, 1)) == NULL;
    self->entries = (Entry *)(((uintptr_t)self->room + LINE - 1) / LINE * LINE);
    if (failed) PyErr_NoMemory();
    for (point = 0; point < 0x80 && !failed; point++) failed = ask_class(self, point) < 0;
    if (failed) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    {"encode", (PyCFunction)(void (*)(void))encode, METH_O, "encode(text): its ids as bytes, or None."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_new, make}, {Py_tp_dealloc, delete}, {Py_tp_methods, methods},
                              {Py_tp_doc, "Words(reader, encode, classify, splits_alike)"}, {0, NULL}};

static PyType_Spec spec = {"ir3de.kernel._native.Words", sizeof(Words), 0, Py_TPFLAGS_DEFAULT, slots};

static PyTypeObject *words_type;

int is_words(PyObject *object) { return PyObject_TypeCheck(object, words_type); }

int add_words(PyObject *module)
{
    int length, byte;
    for (length = 0; length < KEY_BYTES; length++)
        for (byte = 0; byte < length; byte++) ((unsigned char *)masks[length])[byte] = 0xFF;
    if (words_type == NULL) words_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return words_type == NULL ? -1 : PyModule_AddObjectRef(module, "Words", (PyObject *)words_type);
}
