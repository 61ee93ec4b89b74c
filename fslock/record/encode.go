package record

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Encode returns the record as AgentMux writes it: pretty JSON with all thirteen keys and a trailing newline,
// then those of our optional fields that are set, then Extra as it was read. Bytes in a string that are no
// UTF-8 become U+FFFD.
func (l *Lease) Encode() []byte {
	f := l.fields()
	b := appendFields(make([]byte, 0, 512), f[:], l.Extra, "\n  ", ": ")
	return append(b, "\n}\n"...)
}

// Encode returns the record as AFT writes it: compact JSON on one line with a trailing newline, without the
// keys that are unknown, then those of our optional fields that are set, then Extra. Bytes in a string that
// are no UTF-8 become U+FFFD.
func (l *Lock) Encode() []byte {
	f := l.fields()
	b := appendFields(make([]byte, 0, 512), f[:], l.Extra, "", ":")
	return append(b, "}\n"...)
}

// EncodePadded is Encode with spaces before the newline, so that the whole is size bytes. A record that is
// longer than that comes unpadded.
func (l *Lock) EncodePadded(size int) []byte {
	b := l.Encode()
	if len(b) >= size {
		return b
	}
	b = b[:len(b)-1]
	for len(b) < size-1 {
		b = append(b, ' ')
	}
	return append(b, '\n')
}

// EncodeCounter returns an epoch counter as AgentMux writes it.
func EncodeCounter(n uint64) []byte {
	return append(strconv.AppendUint(nil, n, 10), '\n')
}

func appendFields(b []byte, fields []field, extra []Extra, lead, colon string) []byte {
	sep := byte('{')
	start := func(key string) {
		b = append(b, sep)
		sep = ','
		b = append(appendString(append(b, lead...), key), colon...)
	}
	for _, f := range fields {
		if f.presence >= sparse && unset(f.place) {
			continue
		}
		start(f.key)
		b = appendValue(b, f.place)
	}
	for _, e := range extra {
		start(e.Key)
		b = append(b, e.Raw...)
	}
	return b
}

func unset(place any) bool {
	switch p := place.(type) {
	case *string:
		return *p == ""
	case **string:
		return *p == nil
	case *uint64:
		return *p == 0
	case **uint64:
		return *p == nil
	case *int64:
		return *p == 0
	case **Guard:
		return *p == nil
	}
	return false
}

func appendValue(b []byte, place any) []byte {
	switch p := place.(type) {
	case *string:
		return appendString(b, *p)
	case **string:
		if *p != nil {
			return appendString(b, **p)
		}
	case *uint32:
		return strconv.AppendUint(b, uint64(*p), 10)
	case *uint64:
		return strconv.AppendUint(b, *p, 10)
	case **uint64:
		if *p != nil {
			return strconv.AppendUint(b, **p, 10)
		}
	case *int64:
		return strconv.AppendInt(b, *p, 10)
	case **Guard:
		if g := *p; g != nil {
			b = strconv.AppendUint(append(b, `{"dev":`...), g.Dev, 10)
			return append(strconv.AppendUint(append(b, `,"ino":`...), g.Ino, 10), '}')
		}
	}
	return append(b, "null"...)
}

// appendString quotes as the originals do: only the quote, the backslash and control characters are escaped.
func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // the error tells of bytes that were replaced by U+FFFD
	return b
}
