package record

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// skip is for what this machine cannot do; where everything must run it is a failure.
func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("HOLDFAST_STRICT") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

func mustLease(tb testing.TB, data []byte) Lease {
	tb.Helper()
	l, err := DecodeLease("x.lease.json", data)
	if err != nil {
		tb.Fatalf("%v in %q", err, data)
	}
	return l
}

func mustLock(tb testing.TB, data []byte) Lock {
	tb.Helper()
	l, err := DecodeLock("x.lock", data)
	if err != nil {
		tb.Fatalf("%v in %q", err, data)
	}
	return l
}

func TestOriginalsFilesAreWrittenByteForByte(t *testing.T) {
	for _, name := range []string{"agent-1.lease.json", "agent-1.after-renew", "agent-nosession.lease.json"} {
		data := load(t, "leases", name)
		l := mustLease(t, data)
		if got := l.Encode(); !bytes.Equal(got, data) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, data)
		}
	}
	for _, name := range []string{"test.lock", "test.lock.after-heartbeat", ".test.lock.reclaim"} {
		data := load(t, "lock", name)
		l := mustLock(t, data)
		if got := l.Encode(); !bytes.Equal(got, data) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, data)
		}
	}
	for _, name := range []string{"agent-1.epoch", "agent-nosession.epoch"} {
		data := load(t, "leases", name)
		n, err := DecodeCounter(name, data)
		if got := EncodeCounter(n); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, data)
		}
	}
}

func TestJulyFormatIsReadWithTheRestUnknown(t *testing.T) {
	for _, name := range []string{"agent-old.lease.json", "agent-old-pretty.lease.json"} {
		l := mustLease(t, load(t, "leases-old", name))
		want := Lease{
			InstanceID: strings.TrimSuffix(name, ".lease.json"), OwnerBootID: "boot-old", BlockID: "b", PID: 1,
			AcquiredAtMS: 1796046962556, RenewedAtMS: 1796046962556,
		}
		if !reflect.DeepEqual(l, want) {
			t.Errorf("read %+v, want %+v", l, want)
		}
		again := mustLease(t, l.Encode())
		if !bytes.Contains(l.Encode(), []byte("\"claim_id\": \"\"\n")) || !reflect.DeepEqual(again, want) {
			t.Errorf("written as %s", l.Encode())
		}
	}
}

func TestUnknownKeysSurviveARenewal(t *testing.T) {
	for _, name := range []string{
		"030-unknown-extra-field", "031-unknown-field-nested-127-deep", "034-unknown-field-1e999", "035-unknown-field-0",
		"041-wrong-case-extra-key-Pid-beside-pid",
	} {
		data := load(t, "edge-leases", name+".lease.json")
		l := mustLease(t, data)
		if got := l.Encode(); !bytes.Equal(got, data) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, data)
		}
	}
	twice := mustLease(t, load(t, "edge-leases", "037-unknown-duplicated-twice.lease.json"))
	if want := []Extra{{"zz", []byte("0")}, {"zz", []byte("1")}}; !reflect.DeepEqual(twice.Extra, want) {
		t.Errorf("kept %q, want %q", twice.Extra, want)
	}

	lock := mustLock(t, []byte("{\"pid\":1,\"hostname\":\"h\",\"z\\u0000\": {\n \"a\" : [ 1.50, \"b c\" ] },\"created_at_ms\":2,\"heartbeat_at_ms\":3}"))
	want := `{"pid":1,"hostname":"h","created_at_ms":2,"heartbeat_at_ms":3,"writer_epoch":"","z\u0000":{"a":[1.50,"b c"]}}` + "\n"
	if got := string(lock.Encode()); got != want {
		t.Errorf("wrote %swant  %s", got, want)
	}
}

// Go's own decoder would take most of these.
func TestDecoderIsAsStrictAsTheOriginals(t *testing.T) {
	lease, lock := string(load(t, "leases", "agent-1.lease.json")), string(load(t, "lock", "test.lock"))
	for name, change := range map[string]func(string) string{
		"duplicate key":   func(s string) string { return strings.Replace(s, `"pid"`, `"pid":1,"pid"`, 1) },
		"null":            func(s string) string { return strings.Replace(s, `"vm"`, "null", 1) },
		"PID for pid":     func(s string) string { return strings.Replace(s, `"pid"`, `"PID"`, 1) },
		"trailing NULs":   func(s string) string { return s + "\x00\x00" },
		"second document": func(s string) string { return s + s },
		"byte order mark": func(s string) string { return "\ufeff" + s },
		"1.0":             func(s string) string { return strings.Replace(s, `"pid":`, `"pid":1.0,"x":`, 1) },
		"-0":              func(s string) string { return strings.Replace(s, `"pid":`, `"pid":-0,"x":`, 1) },
		"-0 for a stamp":  func(s string) string { return regexp.MustCompile(`_at_ms": ?\d+`).ReplaceAllString(s, `_at_ms":-0`) },
		"2^32":            func(s string) string { return strings.Replace(s, `"pid":`, `"pid":4294967296,"x":`, 1) },
		"number as text":  func(s string) string { return strings.Replace(s, `"pid":`, `"pid":"1","x":`, 1) },
		"text as number":  func(s string) string { return strings.Replace(s, `"vm"`, "1", 1) },
		"lone surrogate":  func(s string) string { return strings.Replace(s, `"vm"`, `"\udc00"`, 1) },
		"invalid UTF-8":   func(s string) string { return strings.Replace(s, `"vm"`, "\"\xc0\x80\"", 1) },
		"array":           func(s string) string { return "[" + s + "]" },
		"no-break space":  func(s string) string { return "\u00a0" + s },
	} {
		for text, decode := range map[string]func(string) error{
			lease: func(s string) error { _, err := DecodeLease("x", []byte(s)); return err },
			lock:  func(s string) error { _, err := DecodeLock("x", []byte(s)); return err },
		} {
			changed := change(text)
			if err := decode(text); err != nil || changed == text {
				t.Fatalf("%s: %v", name, err)
			}
			if e := wantMalformed(t, decode(changed)); e.Torn {
				t.Errorf("%s: torn", name)
			}
		}
	}
}

func TestWrongCaseKeyIsNotTheKey(t *testing.T) {
	_, err := DecodeLock("x", []byte(`{"PID":1,"hostname":"h","created_at_ms":2,"heartbeat_at_ms":3}`))
	if e := wantMalformed(t, err); e.Detail != `no key "pid"` {
		t.Error(e)
	}
	escaped := mustLock(t, []byte(`{"p\u0069d":7,"hostname":"\u0068\ud83d\ude00\/","created_at_ms":2,"heartbeat_at_ms":3}`))
	if escaped.PID != 7 || escaped.Hostname != "h😀/" {
		t.Errorf("read %+v", escaped)
	}
	_, err = DecodeLock("x", []byte(`{"pid":7,"p\u0069d":7,"hostname":"","created_at_ms":2,"heartbeat_at_ms":3}`))
	if e := wantMalformed(t, err); e.Detail != `duplicate key "pid"` {
		t.Error(e)
	}
}

const bareLock = `{"pid":1,"hostname":"h","created_at_ms":2,"heartbeat_at_ms":3`

func TestOurFieldsComeAfterTheKnownKeysAndBeforeTheUnknown(t *testing.T) {
	start, boot := uint64(5), "b"
	lock := Lock{
		PID: 1, Hostname: "h", ProcessStartTime: &start, BootID: &boot, CreatedAtMS: 2, HeartbeatAtMS: 3,
		WriterEpoch: "w",
		Ours:        Ours{PIDNS: 10, PidfdIno: 11, TimeNS: 12, Guard: &Guard{13, 14}, BeatBootMS: 15},
		Extra:       []Extra{{"z", []byte("[]")}},
	}
	want := `{"pid":1,"hostname":"h","process_start_time":5,"boot_id":"b","created_at_ms":2,"heartbeat_at_ms":3,"writer_epoch":"w",` +
		`"pid_ns":10,"pidfd_ino":11,"time_ns":12,"guard":{"dev":13,"ino":14},"beat_boot_ms":15,"z":[]}` + "\n"
	if got := string(lock.Encode()); got != want {
		t.Errorf("wrote %swant  %s", got, want)
	}
	if again := mustLock(t, []byte(want)); !reflect.DeepEqual(again, lock) {
		t.Errorf("read %+v, want %+v", again, lock)
	}

	lease := Lease{
		InstanceID: "i",
		Ours:       Ours{PIDNS: 10, PidfdIno: 11, TimeNS: 12, BeatBootMS: 15, KernelBootID: "k", PIDStartTicks: 16},
		Extra:      []Extra{{"z", []byte("[]")}},
	}
	tail := `  "claim_id": "",
  "pid_ns": 10,
  "pidfd_ino": 11,
  "time_ns": 12,
  "beat_boot_ms": 15,
  "kernel_boot_id": "k",
  "pid_start_ticks": 16,
  "z": []
}
`
	if got := string(lease.Encode()); !strings.HasSuffix(got, tail) {
		t.Errorf("wrote %s\nwant ...%s", got, tail)
	}
	if again := mustLease(t, lease.Encode()); !reflect.DeepEqual(again, lease) {
		t.Errorf("read %+v, want %+v", again, lease)
	}
}

func TestOurFieldOfAWrongTypeCountsAsAbsent(t *testing.T) {
	for _, member := range []string{
		`"pid_ns":"4"`, `"pid_ns":-1`, `"pid_ns":18446744073709551616`, `"pidfd_ino":1.5`, `"time_ns":null`,
		`"time_ns":[1]`,
		`"beat_boot_ms":{}`, `"beat_boot_ms":-7`, `"guard":7`, `"guard":{"dev":1}`, `"guard":{"dev":1,"ino":"2"}`,
		`"guard":null`,
		`"guard":[1,2]`, `"guard":{"dev":1,"ino":2,"ino":3}`,
	} {
		l := mustLock(t, []byte(bareLock+","+member+"}"))
		if l.Ours != (Ours{}) || l.Extra != nil {
			t.Errorf("%s: %+v %q", member, l.Ours, l.Extra)
		}
		if strings.Contains(string(l.Encode()), member[:5]) {
			t.Errorf("%s: kept", member)
		}
	}
	_, err := DecodeLock("x", []byte(bareLock+`,"pid_ns":4,"pid_ns":4}`))
	wantMalformed(t, err)
}

func TestStringsAreEscapedAsTheOriginalsDo(t *testing.T) {
	var in strings.Builder
	for c := range rune(0x80) {
		in.WriteRune(c)
	}
	in.WriteString("é\u2028\u2029\ufeff\ufffd😀")
	l := Lock{Hostname: in.String()}
	want := `\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000b\f\r\u000e\u000f` +
		`\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001a\u001b\u001c\u001d\u001e\u001f` +
		" !\\\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\\\]^_`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"é\u2028\u2029\ufeff\ufffd😀"
	if got := string(l.Encode()); !strings.Contains(got, `"hostname":"`+want+`",`) {
		t.Errorf("wrote %q", got)
	}
	if again := mustLock(t, l.Encode()); again.Hostname != l.Hostname {
		t.Errorf("read %q", again.Hostname)
	}
	// A host name is bytes to the kernel.
	l.Hostname = "a\xffb"
	if again := mustLock(t, l.Encode()); again.Hostname != "a\ufffdb" {
		t.Errorf("read %q", again.Hostname)
	}
}

func TestPaddingKeepsTheLength(t *testing.T) {
	l := mustLock(t, load(t, "lock", "test.lock"))
	n := len(l.Encode())
	for _, size := range []int{-1, 0, n - 1, n, n + 1, n + 100} {
		got := l.EncodePadded(size)
		if len(got) != max(n, size) || got[len(got)-1] != '\n' || bytes.Count(got, []byte("\n")) != 1 {
			t.Errorf("%d bytes for %d: %q", len(got), size, got)
		}
		if again := mustLock(t, got); !reflect.DeepEqual(again, l) {
			t.Errorf("read %+v", again)
		}
	}
}

func TestHeartbeatAloneDoesNotChangeTheOwner(t *testing.T) {
	beat := mustLock(t, load(t, "lock", "test.lock.after-heartbeat"))
	beat.Ours.PIDNS = 4
	for name, change := range map[string]func(*Lock){
		"pid":     func(l *Lock) { l.PID++ },
		"host":    func(l *Lock) { l.Hostname = "VM" },
		"start":   func(l *Lock) { *l.ProcessStartTime++ },
		"nostart": func(l *Lock) { l.ProcessStartTime = nil },
		"boot":    func(l *Lock) { *l.BootID = "" },
		"noboot":  func(l *Lock) { l.BootID = nil },
		"created": func(l *Lock) { l.CreatedAtMS++ },
		"nonce":   func(l *Lock) { l.WriterEpoch = "" },
	} {
		l := mustLock(t, load(t, "lock", "test.lock"))
		if !l.SameOwner(&beat) || !beat.SameOwner(&l) {
			t.Fatal("a heartbeat changed the owner")
		}
		change(&l)
		if l.SameOwner(&beat) || beat.SameOwner(&l) {
			t.Errorf("%s does not count", name)
		}
	}
}

func TestCounter(t *testing.T) {
	for in, want := range map[string]uint64{
		"0": 0, "7\n": 7, "+7": 7, "  0007\t\r\n": 7, "+00\n": 0, "18446744073709551615\n": math.MaxUint64,
		"\u00a05\u2003": 5,
	} {
		if n, err := DecodeCounter("x.epoch", []byte(in)); err != nil || n != want {
			t.Errorf("%q: %d, %v; want %d", in, n, err, want)
		}
	}
	for in, want := range map[string]struct {
		offset int64
		torn   bool
	}{
		"": {0, true}, "\x00\x00": {0, true}, "\n": {0, false}, "x": {0, false}, " 12 3": {3, false}, "++1": {1, false},
		"+": {0, false}, "-1": {0, false}, "-0": {0, false}, "1.0": {1, false}, "1_0": {1, false}, "0x1": {1, false},
		"18446744073709551616": {0, false}, "3\x00": {1, false}, "\xff3": {0, false}, "٣": {0, false},
	} {
		n, err := DecodeCounter("x.epoch", []byte(in))
		e := wantMalformed(t, err)
		if n != 0 || e.Offset != want.offset || e.Torn != want.torn || e.Path != "x.epoch" {
			t.Errorf("%q: %d, %+v; want %+v", in, n, e, want)
		}
	}
}

func TestErrorsAreOfTheirKind(t *testing.T) {
	e := &Error{Op: "open", Path: "/x", Problem: Denied, Detail: "owned by uid 0, mode 0600", Err: fs.ErrPermission}
	if got := e.Error(); got != "open /x: denied: owned by uid 0, mode 0600" {
		t.Error(got)
	}
	if !errors.Is(e, fs.ErrPermission) {
		t.Error("the system's error is lost")
	}
	e = &Error{Op: "parse", Path: "/x", Problem: Malformed}
	if got := e.Error(); got != "parse /x: malformed" {
		t.Error(got)
	}
}

func drawOurs(t *rapid.T) Ours {
	return Ours{
		PIDNS: rapid.Uint64().Draw(t, "pid ns"), PidfdIno: rapid.Uint64().Draw(t, "pidfd"),
		TimeNS:     rapid.Uint64().Draw(t, "time ns"),
		BeatBootMS: rapid.Int64Min(0).Draw(t, "beat"),
	}
}

func drawLock(t *rapid.T) Lock {
	l := Lock{
		PID: rapid.Uint32().Draw(t, "pid"), Hostname: rapid.String().Draw(t, "host"),
		CreatedAtMS:      rapid.Uint64().Draw(t, "created"),
		HeartbeatAtMS:    rapid.Uint64().Draw(t, "heartbeat"),
		ProcessStartTime: rapid.Ptr(rapid.Uint64(), true).Draw(t, "start"),
		BootID:           rapid.Ptr(rapid.String(), true).Draw(t, "boot"),
		WriterEpoch:      rapid.String().Draw(t, "nonce"), Ours: drawOurs(t),
	}
	if rapid.Bool().Draw(t, "guarded") {
		l.Ours.Guard = &Guard{rapid.Uint64().Draw(t, "dev"), rapid.Uint64().Draw(t, "ino")}
	}
	return l
}

func drawLease(t *rapid.T) Lease {
	s := rapid.String()
	l := Lease{
		InstanceID: s.Draw(t, "id"), OwnerBootID: s.Draw(t, "owner"), BlockID: s.Draw(t, "block"),
		SessionID: rapid.Ptr(s, true).Draw(t, "session"), PID: rapid.Uint32().Draw(t, "pid"),
		AcquiredAtMS: rapid.Int64().Draw(t, "acquired"), RenewedAtMS: rapid.Int64().Draw(t, "renewed"),
		Epoch: rapid.Uint64().Draw(t, "epoch"), Hostname: s.Draw(t, "host"), PIDStartS: rapid.Uint64().Draw(t, "start"),
		Channel: s.Draw(t, "channel"), Version: s.Draw(t, "version"), ClaimID: s.Draw(t, "claim"), Ours: drawOurs(t),
	}
	l.Ours.KernelBootID, l.Ours.PIDStartTicks = s.Draw(t, "kernel boot"), rapid.Uint64().Draw(t, "ticks")
	return l
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	t.Run("lock", rapid.MakeCheck(func(t *rapid.T) {
		l := drawLock(t)
		again, err := DecodeLock("x", l.Encode())
		if err != nil || !reflect.DeepEqual(again, l) {
			t.Fatalf("%v: %s\nread %+v\nof   %+v", err, l.Encode(), again, l)
		}
	}))
	t.Run("lease", rapid.MakeCheck(func(t *rapid.T) {
		l := drawLease(t)
		again, err := DecodeLease("x", l.Encode())
		if err != nil || !reflect.DeepEqual(again, l) {
			t.Fatalf("%v: %s\nread %+v\nof   %+v", err, l.Encode(), again, l)
		}
	}))
}
