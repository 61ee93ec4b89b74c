package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An edge is an odd file and what the original program made of it.
type edge struct {
	File     string
	What     string
	Original string // "valid", or "unreadable" or "malformed"
	Decoded  json.RawMessage
	Detail   string
}

func edges(t *testing.T, dir string) []edge {
	t.Helper()
	var all []edge
	if err := json.Unmarshal(load(t, dir, "MANIFEST.json"), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 30 {
		t.Fatalf("only %d edge files in %s", len(all), dir)
	}
	return all
}

func load(tb testing.TB, name ...string) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, name...)...))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// What the originals read and we call malformed, which waits.
const (
	arrayForm  = "nobody writes the array form"
	illEncoded = "an unknown key with a lone surrogate"
	veryDeep   = "nested deeper than any writer does"
)

func TestLeasesAreReadAsTheOriginalReadsThem(t *testing.T) {
	stricter := map[string]string{
		"018-array-form-all-13.lease.json":               arrayForm,
		"019-array-form-first-7.lease.json":              arrayForm,
		"026-lone-surrogate-in-unknown-field.lease.json": illEncoded,
		"033-unknown-field-nested-20000-deep.lease.json": veryDeep,
	}
	for _, e := range edges(t, "edge-leases") {
		t.Run(e.File, func(t *testing.T) {
			l, err := DecodeLease(e.File, load(t, "edge-leases", e.File))
			if why := stricter[e.File]; why != "" {
				delete(stricter, e.File)
				if e.Original != "valid" || err == nil {
					t.Fatalf("original says %s, ours %v; the exception (%s) is none", e.Original, err, why)
				}
				return
			}
			if e.Original != "valid" {
				wantMalformed(t, err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var want struct {
				InstanceID   string  `json:"instance_id"`
				OwnerBootID  string  `json:"owner_boot_id"`
				BlockID      string  `json:"block_id"`
				SessionID    *string `json:"session_id"`
				PID          uint32  `json:"pid"`
				AcquiredAtMS int64   `json:"acquired_at_ms"`
				RenewedAtMS  int64   `json:"renewed_at_ms"`
				Epoch        uint64  `json:"epoch"`
				Hostname     string  `json:"hostname"`
				PIDStartS    uint64  `json:"pid_start_s"`
				Channel      string  `json:"channel"`
				Version      string  `json:"version"`
				ClaimID      string  `json:"claim_id"`
			}
			if err := json.Unmarshal(e.Decoded, &want); err != nil {
				t.Fatal(err)
			}
			got := want
			got.InstanceID, got.OwnerBootID, got.BlockID, got.SessionID = l.InstanceID, l.OwnerBootID, l.BlockID, l.SessionID
			got.PID, got.AcquiredAtMS, got.RenewedAtMS, got.Epoch = l.PID, l.AcquiredAtMS, l.RenewedAtMS, l.Epoch
			got.Hostname, got.PIDStartS, got.Channel, got.Version, got.ClaimID = l.Hostname, l.PIDStartS, l.Channel, l.Version, l.ClaimID
			if !equal(got.SessionID, want.SessionID) {
				t.Errorf("session id %v, want %v", got.SessionID, want.SessionID)
			}
			got.SessionID, want.SessionID = nil, nil
			if got != want {
				t.Errorf("read %+v\nwant %+v", got, want)
			}
		})
	}
	if len(stricter) > 0 {
		t.Errorf("exceptions without a file: %v", stricter)
	}
}

func TestLocksAreReadAsTheOriginalReadsThem(t *testing.T) {
	stricter := map[string]string{"035-array-form.lock": arrayForm}
	for _, e := range edges(t, "edge-locks") {
		t.Run(e.File, func(t *testing.T) {
			l, err := DecodeLock(e.File, load(t, "edge-locks", e.File))
			if why := stricter[e.File]; why != "" {
				delete(stricter, e.File)
				if e.Original != "valid" || err == nil {
					t.Fatalf("original says %s, ours %v; the exception (%s) is none", e.Original, err, why)
				}
				return
			}
			if e.Original != "valid" {
				wantMalformed(t, err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			// The original's own encoding of what it read.
			l.Extra = nil
			want := e.Detail[strings.IndexByte(e.Detail, '{'):] + "\n"
			if got := string(l.Encode()); got != want {
				t.Errorf("read %swant %s", got, want)
			}
		})
	}
	if len(stricter) > 0 {
		t.Errorf("exceptions without a file: %v", stricter)
	}
}

func wantMalformed(t *testing.T, err error) Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an *Error", err)
	}
	if e.Op != "parse" || e.Problem != Malformed || e.Detail == "" {
		t.Errorf("got %+v, want a malformed record with a reason", e)
	}
	return *e
}

func TestWhatIsWrongIsToldAndWhere(t *testing.T) {
	for _, c := range []struct {
		file   string
		before string // the text in front of the first offending byte
		detail string
	}{
		{"006-trailing-garbage", "}\n", "data after the record"},
		{"007-trailing-NUL-bytes", "}\n", "NUL bytes after the record"},
		{"010-leading-form-feed", "", "'\\f'"},
		{"011-trailing-comma", "\"cid\",\n", "'}'"},
		{"015-null", "", "not an object, but null"},
		{"017-", "{", `no key "instance_id"`},
		{"018-array-form-all-13", "", "not an object, but an array"},
		{"023-invalid-UTF-8-in-known-string", `"channel": "`, "UTF-8"},
		{"025-lone-surrogate-ud800-in-known-string", `"channel": "`, "surrogate"},
		{"027-raw-control-char-in-known-string", `"channel": "`, "'\\x01'"},
		{"038-duplicated-known-key-same-value", "\"pid\": 1,\n  ", `duplicate key "pid"`},
		{"039-duplicated-claim-id", `"claim_id": "", `, `duplicate key "claim_id"`},
		{"046-missing-owner-boot-id", "\n", `no key "owner_boot_id"`},
		{"057-null-instance-id", `"instance_id": `, `"instance_id" must be a string, not null`},
		{"058-null-pid", `"pid": `, `"pid" must be an integer from 0 to 2^32-1, not null`},
		{"059-null-epoch", `"epoch": `, `"epoch" must be an integer from 0 to 2^64-1, not null`},
		{"063-pid-string-12", `"pid": `, `"pid" must be an integer from 0 to 2^32-1, not a string`},
		{"065-pid-1e3", `"pid": `, "not the number 1e3"},
		{"067-pid-0", `"pid": `, "not the number -0"},
		{"094-renewed-1-5e12", `"renewed_at_ms": `, `must be an integer from -2^63 to 2^63-1, not the number 1.5e12`},
		{"097-epoch-2-64", `"epoch": `, "not the number 18446744073709551616"},
		{"101-300-digit-epoch", `"epoch": `, "not the number " + strings.Repeat("9", 40)},
	} {
		t.Run(c.file, func(t *testing.T) {
			name := c.file + ".lease.json"
			data := load(t, "edge-leases", name)
			_, err := DecodeLease(name, data)
			e := wantMalformed(t, err)
			if !strings.Contains(e.Detail, c.detail) || e.Path != name || e.Torn {
				t.Errorf("got %q torn=%v, want %q", e.Detail, e.Torn, c.detail)
			}
			if before := data[:e.Offset]; !bytes.HasSuffix(before, []byte(c.before)) {
				t.Errorf("at byte %d, after %q; want after %q", e.Offset, before, c.before)
			}
		})
	}
	_, err := DecodeLock("x.lock", load(t, "edge-locks", "031-BOM.lock"))
	if e := wantMalformed(t, err); e.Offset != 0 || e.Detail != "begins with a byte order mark" {
		t.Errorf("got %d %q", e.Offset, e.Detail)
	}
}
