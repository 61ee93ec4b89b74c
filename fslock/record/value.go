package record

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// store puts a whole value into its place, or reports that it does not fit and leaves the place alone. Bare says
// that there is no escape in it.
func store(place any, raw string, bare bool) bool {
	switch p := place.(type) {
	case *string:
		if raw[0] != '"' {
			return false
		}
		*p = unquote(raw, bare)
	case *uint32:
		v, err := strconv.ParseUint(raw, 10, 32)
		if err != nil {
			return false
		}
		*p = uint32(v)
	case *uint64:
		v, err := strconv.ParseUint(raw, 10, 64)
		if err != nil {
			return false
		}
		*p = v
	case *int64:
		v, err := strconv.ParseInt(raw, 10, 64)
		if err != nil || raw == "-0" {
			return false
		}
		*p = v
	case **string:
		return storeNullable(p, raw, bare)
	case **uint64:
		return storeNullable(p, raw, bare)
	case **Guard:
		var g struct {
			Dev *uint64 `json:"dev"`
			Ino *uint64 `json:"ino"`
		}
		if json.Unmarshal([]byte(raw), &g) != nil || g.Dev == nil || g.Ino == nil {
			return false
		}
		*p = &Guard{Dev: *g.Dev, Ino: *g.Ino}
	}
	return true
}

func storeNullable[T any](place **T, raw string, bare bool) bool {
	if raw == "null" {
		return true
	}
	v := new(T)
	if !store(v, raw, bare) {
		return false
	}
	*place = v
	return true
}

// begins reports whether what data ends with may be the beginning of a value that fits the place.
func begins(place any, s string) bool {
	if s == "" {
		return true
	}
	switch place.(type) {
	case *string:
		return s[0] == '"'
	case **string:
		return s[0] == '"' || strings.HasPrefix("null", s)
	case **uint64:
		return store(new(uint64), s, true) || strings.HasPrefix("null", s)
	case *uint32:
		return store(new(uint32), s, true)
	case *uint64:
		return store(new(uint64), s, true)
	case *int64:
		return s == "-" || store(new(int64), s, true)
	}
	return false
}

// wanted is what fits a place, for a person.
func wanted(place any) string {
	switch place.(type) {
	case *string:
		return "a string"
	case **string:
		return "a string or null"
	case *uint32:
		return "an integer from 0 to 2^32-1"
	case *uint64:
		return "an integer from 0 to 2^64-1"
	case **uint64:
		return "an integer from 0 to 2^64-1 or null"
	default:
		return "an integer from -2^63 to 2^63-1"
	}
}

// kind is what a JSON value begins like, for a person.
func kind(raw string) string {
	switch raw[0] {
	case '"':
		return "a string"
	case '[':
		return "an array"
	case '{':
		return "an object"
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	default:
		return "the number " + strings.TrimRight(raw[:min(len(raw), shown)], " \t\r\n")
	}
}

// shown is how many bytes of what stands in a file an error tells.
const shown = 40

// quoted is a key for a person: short, and harmless on a terminal.
func quoted(key string) string { return strconv.Quote(key[:min(len(key), shown)]) }

// unquote returns the text of a JSON string, which is well-formed.
func unquote(raw string, bare bool) string {
	if bare || strings.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, raw) // the library has seen the whole document already
	return string(text)
}
