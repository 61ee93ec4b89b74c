package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
)

// DecodeLease reads a lease as strictly as AgentMux does, but for the array form, ill-encoded unknown keys and
// very deep nesting, which nobody writes and which are malformed here. The error is an *Error with Op "parse".
func DecodeLease(path string, data []byte) (Lease, error) {
	return decodeLease(path, data, string(data))
}

// decodeLease takes the data as text, too: the record's strings are parts of that.
func decodeLease(path string, data []byte, text string) (Lease, error) {
	var l Lease
	f := l.fields()
	extra, err := decode(path, data, text, f[:], true)
	if err != nil {
		return Lease{}, err
	}
	l.Extra = extra
	l.Ours.BeatBootMS = max(l.Ours.BeatBootMS, 0)
	return l, nil
}

// DecodeLock reads a lock or a token as strictly as AFT does, with the same exceptions as DecodeLease. The
// error is an *Error with Op "parse". The values in Extra are compact, so that the record stays on one line.
func DecodeLock(path string, data []byte) (Lock, error) { return decodeLock(path, data, string(data)) }

// decodeLock is to DecodeLock what decodeLease is to DecodeLease.
func decodeLock(path string, data []byte, text string) (Lock, error) {
	var l Lock
	f := l.fields()
	extra, err := decode(path, data, text, f[:], false)
	if err != nil {
		return Lock{}, err
	}
	for i := range extra {
		v := jsontext.Value(extra[i].Raw)
		if err := v.Compact(jsontext.AllowDuplicateNames(true)); err == nil {
			extra[i].Raw = v
		}
	}
	l.Extra = extra
	l.Ours.BeatBootMS = max(l.Ours.BeatBootMS, 0)
	return l, nil
}

// DecodeCounter reads an epoch counter: a decimal number up to 2^64-1, with white space around it, one plus
// sign and leading zeros allowed. The error is an *Error with Op "parse".
func DecodeCounter(path string, data []byte) (uint64, error) {
	s := strings.TrimSpace(string(data))
	start := strings.Index(string(data), s)
	digits := strings.TrimPrefix(s, "+")
	n, err := strconv.ParseUint(digits, 10, 64)
	if err == nil {
		return n, nil
	}
	e := malformed(path, start, "not a number")
	bad := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
	switch {
	case len(bytes.Trim(data, "\x00")) == 0:
		e = hollow(path, data)
	case errors.Is(err, strconv.ErrRange):
		e.Detail = "larger than 2^64-1"
	case bad >= 0:
		e.Offset = int64(start + len(s) - len(digits) + bad)
	}
	return 0, e
}

func malformed(path string, offset int, detail string) *Error {
	return &Error{Op: "parse", Path: path, Problem: Malformed, Offset: int64(offset), Detail: detail}
}

// hollow is the error for a file without content.
func hollow(path string, data []byte) *Error {
	e := malformed(path, 0, "empty")
	if len(data) > 0 {
		e.Detail = "nothing but NUL bytes"
	}
	e.Torn = true
	return e
}

// alias returns data as a string that is no copy. It changes with data, which therefore nobody may change.
func alias(data []byte) string { return unsafe.String(unsafe.SliceData(data), len(data)) }

// decode fills the fields from the one JSON object that data is, and returns its unknown keys. Whole is data as text, of
// which the fields become parts. Pretty says that a writer of such records may put white space before the first key.
//
// The library alone judges the syntax; the walk afterwards relies on that and looks only at what the library
// does not know: which keys there are and what they take.
func decode(path string, data []byte, whole string, fields []field, pretty bool) ([]Extra, error) {
	text := data
	if n := len(data); n > 0 && data[n-1] == 0 {
		// A power cut leaves what was not written yet as NUL bytes: the text before them decides.
		text = bytes.TrimRight(data, "\x00")
	}
	if len(text) == 0 {
		return nil, hollow(path, data)
	}
	if !jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true)) {
		return nil, explain(path, text, fields, pretty)
	}
	w := newWalk(path, whole[:len(text)])
	if err := w.object(fields); err != nil {
		return nil, err
	}
	if len(text) < len(data) {
		// Not torn: it names a holder.
		return nil, malformed(path, len(text), "NUL bytes after the record")
	}
	return w.extra, nil
}

// explain says what is wrong with data, which the library does not take.
func explain(path string, data []byte, fields []field, pretty bool) *Error {
	end, syntax := len(data), ""
	d := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true))
	_, err := d.ReadValue()
	var at *jsontext.SyntacticError
	switch {
	case err == nil:
		end = int(d.InputOffset())
		end += len(data[end:]) - len(bytes.TrimLeft(data[end:], " \t\r\n"))
		syntax = "data after the record"
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
	case errors.As(err, &at):
		end = min(int(at.ByteOffset), len(data))
		syntax = "no JSON"
		if at.Err != nil {
			syntax = strings.TrimPrefix(at.Err.Error(), "jsontext: ")
		}
	default:
		syntax = err.Error()
	}
	if end == 0 && bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		syntax = "begins with a byte order mark"
	}

	// Something before the end of the good part may be wrong in its own way, and then comes first.
	w := newWalk(path, string(data[:end]))
	wrong := w.object(fields)
	switch {
	case wrong != nil && !w.cut:
		return wrong
	case syntax != "":
		return malformed(path, end, syntax)
	}
	e := malformed(path, end, "ends too early")
	e.Torn = w.cut && w.torn(fields, pretty)
	return e
}

// A walk goes through an object that is well-formed as far as text goes. The fields are no part of it: what they point
// to would escape with what the walk leaves behind, and three allocations a file more are a fifth of its time.
type walk struct {
	path string
	text string // the record's strings are parts of it
	bare bool   // there is no escape anywhere in it
	i    int

	next  int    // where the next key probably is
	seen  uint32 // bit n: fields[n] was met
	extra []Extra
	keys  int  // how many keys were met whole
	begun bool // the first of them is one that a writer begins with
	cut   bool // text ended before the object did
}

func newWalk(path, text string) walk {
	return walk{path: path, text: text, bare: strings.IndexByte(text, '\\') < 0}
}

// object reads the members and returns what is wrong with them. At a cut it returns an error that is not told.
func (w *walk) object(fields []field) *Error {
	w.space()
	if w.end() {
		return w.cutShort()
	}
	if w.text[w.i] != '{' {
		return w.wrong(w.i, "not an object, but "+kind(w.text[w.i:]))
	}
	w.i++
	for {
		w.space()
		switch {
		case w.end():
			return w.cutShort()
		case w.text[w.i] == '}':
			return w.missing(fields)
		case w.text[w.i] == ',':
			w.i++
		default:
			if err := w.member(fields); err != nil {
				return err
			}
		}
	}
}

func (w *walk) member(fields []field) *Error {
	start := w.i
	key, n := w.key(fields)
	if w.cut {
		return w.cutShort()
	}
	if w.keys++; w.keys == 1 {
		w.begun = n >= 0 && fields[n].presence != ours
	}
	if n >= 0 && w.seen&(1<<n) != 0 {
		return w.wrong(start, "duplicate key "+quoted(key))
	}
	for w.space(); !w.end() && w.text[w.i] == ':'; w.space() {
		w.i++
	}
	if w.end() {
		return w.cutShort()
	}
	start = w.i
	raw, whole := w.value()
	if n < 0 {
		w.extra = append(w.extra, Extra{Key: key, Raw: []byte(raw)})
	} else {
		f := &fields[n]
		w.seen |= 1 << n
		ok := whole && store(f.place, raw, w.bare) || !whole && begins(f.place, raw)
		if !ok && f.presence != ours {
			return w.wrong(start, fmt.Sprintf("%s must be %s, not %s", quoted(f.key), wanted(f.place), kind(raw)))
		}
	}
	if !whole {
		return w.cutShort()
	}
	return nil
}

// key steps over a key and returns it with the number of its field, or -1.
func (w *walk) key(fields []field) (key string, n int) {
	if w.next < len(fields) {
		// Writers keep to the order, so that nothing need be searched.
		start, end := w.i+1, w.i+1+len(fields[w.next].key)
		if end < len(w.text) && w.text[start:end] == fields[w.next].key && w.text[end] == '"' {
			w.i = end + 1
			w.next++
			return w.text[start:end], w.next - 1
		}
	}
	raw, whole := w.value()
	if !whole {
		w.cut = true
		return "", -1
	}
	key = unquote(raw, w.bare)
	n = slices.IndexFunc(fields, func(f field) bool { return f.key == key })
	if n >= 0 {
		w.next = n + 1
	}
	return key, n
}

// missing is called at the closing brace.
func (w *walk) missing(fields []field) *Error {
	for n, f := range fields {
		if f.presence == required && w.seen&(1<<n) == 0 {
			return w.wrong(w.i, "no key "+quoted(f.key))
		}
	}
	return nil
}

// torn reports whether data, which was cut, is the beginning of a record. What is torn may later be removed
// without asking, so every doubt falls to no: the first key must be one that a writer begins with, and until
// it is seen whole nothing but the very bytes of such a writer counts. (An unlucky half of another program's
// file, Cargo.lock or composer.lock, has no such key.)
func (w *walk) torn(fields []field, pretty bool) bool {
	rest, ok := strings.CutPrefix(w.text, "{")
	if !ok || w.keys > 0 {
		return ok && w.begun
	}
	if pretty {
		rest = strings.TrimLeft(rest, " \t\r\n")
	}
	return slices.ContainsFunc(fields, func(f field) bool {
		return f.presence != ours && strings.HasPrefix(`"`+f.key+`"`, rest)
	})
}

func (w *walk) wrong(offset int, detail string) *Error { return malformed(w.path, offset, detail) }

func (w *walk) cutShort() *Error {
	w.cut = true
	return w.wrong(len(w.text), "")
}

func (w *walk) end() bool { return w.i >= len(w.text) }

func (w *walk) space() {
	for i := w.i; i < len(w.text); i++ {
		if !isSpace(w.text[i]) {
			w.i = i
			return
		}
	}
	w.i = len(w.text)
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// value steps over the value or the key at w.i, and says whether it is there to its end.
func (w *walk) value() (raw string, whole bool) {
	start, depth := w.i, 0
	for !w.end() {
		c := w.text[w.i]
		w.i++
		switch {
		case c == '"':
			if !w.restOfString() {
				return w.text[start:], false
			}
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case depth == 0:
			w.restOfScalar()
			return w.text[start:w.i], !w.end() // a number at the very end might go on
		}
		if depth == 0 {
			return w.text[start:w.i], true
		}
	}
	return w.text[start:], false
}

func (w *walk) restOfString() bool {
	for {
		n := strings.IndexByte(w.text[w.i:], '"')
		if n < 0 {
			w.i = len(w.text)
			return false
		}
		w.i += n + 1
		if w.bare || !escaped(w.text[:w.i-1]) {
			return true
		}
	}
}

// escaped reports whether what follows text, in a string, is escaped: after an odd number of backslashes.
func escaped(text string) bool {
	return (len(text)-len(strings.TrimRight(text, `\`)))%2 == 1
}

func (w *walk) restOfScalar() {
	i := w.i
	for i < len(w.text) && !isSpace(w.text[i]) && w.text[i] != ',' && w.text[i] != '}' {
		i++
	}
	w.i = i
}
