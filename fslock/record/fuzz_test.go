package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func seed(f *testing.F, dirs ...string) {
	f.Helper()
	for _, dir := range dirs {
		entries, err := os.ReadDir(filepath.Join("testdata", dir))
		if err != nil {
			f.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != "MANIFEST.json" {
				f.Add(load(f, dir, e.Name()))
			}
		}
	}
}

// A rule is what serde demands of a key, told a second time and in other words than the decoder's.
type rule struct {
	must, null bool
	text       bool
	number     *regexp.Regexp // and in range:
	min, max   string
}

// lawful fails if serde would not take data, by another decoder's tokens.
func lawful(t *testing.T, data []byte, rules map[string]rule) {
	t.Helper()
	if !utf8.Valid(data) || !json.Valid(data) {
		t.Fatalf("took what is no JSON: %q", data)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		t.Fatalf("took what is no object: %q", data)
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			t.Fatal(err)
		}
		name, _ := key.(string)
		r, known := rules[name]
		if !known {
			continue
		}
		if seen[name] {
			t.Fatalf("took a second %s: %q", name, data)
		}
		seen[name] = true
		switch s := string(raw); {
		case s == "null":
			if !r.null {
				t.Fatalf("took null for %s: %q", name, data)
			}
		case r.text:
			if s[0] != '"' {
				t.Fatalf("took %s for %s: %q", s, name, data)
			}
		default:
			digits := strings.TrimPrefix(s, "-")
			limit := r.max
			if digits != s {
				limit = strings.TrimPrefix(r.min, "-")
			}
			if !r.number.MatchString(s) || len(digits) > len(limit) || len(digits) == len(limit) && digits > limit {
				t.Fatalf("took %s for %s: %q", s, name, data)
			}
		}
	}
	for name, r := range rules {
		if r.must && !seen[name] {
			t.Fatalf("took a record without %s: %q", name, data)
		}
	}
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		t.Fatalf("took what has more after it: %q", data)
	}
}

func unsigned(bits int, must, null bool) rule {
	limit := strconv.FormatUint(1<<bits-1, 10)
	return rule{must: must, null: null, number: regexp.MustCompile(`^(0|[1-9][0-9]*)$`), min: "", max: limit}
}

func signed() rule {
	number := regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)
	return rule{must: true, number: number, min: "-9223372036854775808", max: "9223372036854775807"}
}

// checkError looks at what a decoder says of data that it does not take.
func checkError(t *testing.T, data []byte, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Op != "parse" || e.Problem != Malformed || e.Detail == "" || e.Path != "x" {
		t.Fatalf("%+v for %q", err, data)
	}
	if e.Offset < 0 || e.Offset > int64(len(data)) {
		t.Fatalf("offset %d of %d", e.Offset, len(data))
	}
	text := bytes.TrimRight(data, "\x00")
	if e.Torn && e.Offset != int64(len(text)) {
		t.Fatalf("torn at %d, but the text ends at %d: %q", e.Offset, len(text), data)
	}
	if e.Torn && len(text) > 0 && text[0] != '{' {
		t.Fatalf("torn, but no beginning of an object: %q", data)
	}
	if bytes.ContainsFunc([]byte(e.Detail), func(r rune) bool { return r < ' ' || r == 0x7f }) {
		t.Fatalf("control characters in %q", e.Detail)
	}
}

func FuzzDecodeLease(f *testing.F) {
	seed(f, "edge-leases", "leases", "leases-old")
	text := rule{text: true}
	needed := rule{text: true, must: true}
	rules := map[string]rule{
		"instance_id": needed, "owner_boot_id": needed, "block_id": needed, "session_id": {text: true, null: true},
		"pid": unsigned(32, true, false), "acquired_at_ms": signed(), "renewed_at_ms": signed(),
		"epoch":    unsigned(64, false, false),
		"hostname": text, "pid_start_s": unsigned(64, false, false), "channel": text, "version": text, "claim_id": text,
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		l, err := DecodeLease("x", data)
		if !bytes.Equal(data, before) {
			t.Fatal("changed its input")
		}
		if err != nil {
			checkError(t, data, err)
			return
		}
		lawful(t, data, rules)
		again, err := DecodeLease("x", l.Encode())
		if err != nil || !reflect.DeepEqual(again, l) {
			t.Fatalf("%v\n%+v\n%+v", err, l, again)
		}
	})
}

func FuzzDecodeLock(f *testing.F) {
	seed(f, "edge-locks", "lock")
	f.Add([]byte(`{"pid":1,"hostname":"h","created_at_ms":2,"heartbeat_at_ms":3,"guard":{"dev":1,"ino":2},"beat_boot_ms":5,"pid_ns":1}`))
	needed := rule{text: true, must: true}
	rules := map[string]rule{
		"pid": unsigned(32, true, false), "hostname": needed, "process_start_time": unsigned(64, false, true),
		"boot_id": {text: true, null: true}, "created_at_ms": unsigned(64, true, false),
		"heartbeat_at_ms": unsigned(64, true, false),
		"writer_epoch":    {text: true},
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		l, err := DecodeLock("x", data)
		if !bytes.Equal(data, before) {
			t.Fatal("changed its input")
		}
		if err != nil {
			checkError(t, data, err)
			return
		}
		lawful(t, data, rules)
		for _, b := range [][]byte{l.Encode(), l.EncodePadded(len(data) + 50)} {
			again, err := DecodeLock("x", b)
			if err != nil || !reflect.DeepEqual(again, l) || !again.SameOwner(&l) {
				t.Fatalf("%v\n%+v\n%+v", err, l, again)
			}
			if bytes.IndexByte(b, '\n') != len(b)-1 {
				t.Fatalf("not one line: %q", b)
			}
		}
	})
}

func FuzzDecodeCounter(f *testing.F) {
	for _, s := range []string{"1\n", "+007", " 18446744073709551615\t", "", "\x00", "x", "-1", "1.0", "\u00a07"} {
		f.Add([]byte(s))
	}
	space := []rune("\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000")
	shape := regexp.MustCompile(`^\+?[0-9]+$`)
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := DecodeCounter("x", data)
		core := strings.TrimFunc(string(data), func(r rune) bool { return slices.Contains(space, r) })
		digits := strings.TrimLeft(strings.TrimPrefix(core, "+"), "0")
		most := "18446744073709551615"
		fits := shape.MatchString(core) && (len(digits) < len(most) || len(digits) == len(most) && digits <= most)
		if fits != (err == nil) {
			t.Fatalf("%q: %d, %v", data, n, err)
		}
		if err != nil {
			checkCounterError(t, data, err)
			return
		}
		if again, err := DecodeCounter("x", EncodeCounter(n)); err != nil || again != n || strconv.FormatUint(n, 10) != orZero(digits) {
			t.Fatalf("%q: %d, then %d, %v", data, n, again, err)
		}
	})
}

func orZero(digits string) string {
	if digits == "" {
		return "0"
	}
	return digits
}

func checkCounterError(t *testing.T, data []byte, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Problem != Malformed || e.Detail == "" || e.Offset < 0 || e.Offset > int64(len(data)) {
		t.Fatalf("%+v for %q", err, data)
	}
	if e.Torn != (len(bytes.Trim(data, "\x00")) == 0) {
		t.Fatalf("torn=%v: %q", e.Torn, data)
	}
}
