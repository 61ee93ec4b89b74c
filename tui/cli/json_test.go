package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
	"holdfast/watch"
)

// documented are the keys of `ls --json` in every place, by the path to it.
var documented = map[string]string{
	"":                  "schema now_ms observer roots entries errors",
	"observer":          "host boot_id pid_ns uid",
	"roots":             "path kind chosen_by fs watch",
	"entries":           "kind root path path_b64 id name state cause sentence claimable flags epoch holder token waiters evidence",
	"entries.claimable": "when at_ms by",
	"entries.holder": "pid host owner_boot_id block_id session_id channel version epoch claim_id writer_epoch acquired_at_ms" +
		" renewed_at_ms process",
	"entries.holder.process": "alive name command user status started_at_ms",
	"entries.token":          "path state pid host created_at_ms clears_at_ms",
	"entries.evidence":       "check saw speaks skipped",
	"entries.waiters":        "pid how",
	"errors":                 "path error",
}

// sample is a look at one entry of each kind, with a value in every field.
func sample() *watch.Snapshot {
	now := time.UnixMilli(1_700_000_100_000)
	alive := proc.Finding{Answer: proc.Alive, PID: 42, Checks: []proc.Check{{Name: "pid", Saw: "42 runs", Speaks: proc.ForAlive}}}
	unknown := proc.Finding{Machine: proc.Elsewhere, Checks: []proc.Check{{Name: "pid", Skipped: "another machine"}}}
	session := "secret-session"
	ms := now.UnixMilli()
	l := &verdict.LeaseFacts{
		Seen: verdict.Seen{
			Path: "/r/leases/a.lease.json", Look: now, Proc: alive, Beat: now.Add(-2 * time.Second), Host: "vm",
			File: record.Stat{ModTime: now.Add(-2 * time.Second)},
		},
		ID: "a", TTL: 15 * time.Second, Interval: 5 * time.Second,
		Record: &record.Lease{
			InstanceID: "a", OwnerBootID: "o", BlockID: "b", SessionID: &session, PID: 42, AcquiredAtMS: ms - 60_000,
			RenewedAtMS: ms - 2_000, Epoch: 5, Hostname: "vm", Channel: "stable", Version: "0.57", ClaimID: "c",
		},
		Counter: verdict.Counter{Value: 5},
	}
	token := &verdict.TokenFacts{
		Seen: verdict.Seen{Path: "/r/index/k/.cache.lock.reclaim", Look: now, Proc: unknown, Host: "vm"},
		Record: &record.Lock{
			PID: 77, Hostname: "old", CreatedAtMS: uint64(ms - 9_000), HeartbeatAtMS: uint64(ms - 9_000), WriterEpoch: "reclaim-77-1",
		},
	}
	k := &verdict.LockFacts{
		Seen: verdict.Seen{Path: "/r/index/k/\xff.lock", Look: now, Proc: unknown, Beat: now.Add(-80 * time.Second), Host: "vm"},
		Record: &record.Lock{
			PID: 42, Hostname: "far", CreatedAtMS: uint64(ms - 90_000), HeartbeatAtMS: uint64(ms - 80_000), WriterEpoch: "w",
		},
		Token: token,
	}
	temp := &verdict.TempFacts{
		Seen: verdict.Seen{Path: "/r/index/k/.cache.lock.tmp.9.1.0", Look: now, Proc: proc.Finding{Answer: proc.Dead, Cause: proc.Gone}},
		PID:  9,
	}
	tok := token.Token(now)
	tok.Clears = now.Add(time.Minute)
	s := &watch.Snapshot{
		Seq: 1, Time: now, Observer: proc.Self{Host: "vm", BootID: "boot", PIDNS: 4026531836, UID: 0},
		Roots: []watch.Root{{Path: "/r", Kind: "agentmux+aft", ChosenBy: "argument", FS: "ext4", Watch: "none"}},
		Entries: []*watch.Entry{
			{Kind: watch.Lease, Root: "/r", Path: l.Path, ID: "a", Name: "researcher", Subject: l, Epoch: 5},
			{Kind: watch.Lock, Root: "/r", Path: k.Path, Name: "web-app", Subject: k, Token: &tok, Waiters: []watch.Waiter{
				{PID: 9, Name: "node", How: watch.ByPoll}, {PID: 11, How: watch.ByFlock, Stopped: true},
			}},
			{Kind: watch.Token, Root: "/r", Path: token.Path, Subject: token, LockOf: k.Path},
			{Kind: watch.Temp, Root: "/r", Path: temp.Path, Subject: temp, LockOf: k.Path},
		},
		Errors: []watch.EntryError{{Path: "/r/locked", Err: errors.New("open /r/locked: permission denied")}},
	}
	for i := range s.Entries {
		s.Entries[i].Verdict = s.Entries[i].Subject.Judge(now)
	}
	return s
}

func describeSample(pid int) (proc.Details, bool) {
	return proc.Details{
		Process: proc.Process{PID: pid, Name: "node", Started: time.UnixMilli(1_699_999_000_000)},
		Command: "node <server>.js", User: "me", Status: "sleeping",
	}, pid == 42
}

func encode(t *testing.T, e *encoder, s *watch.Snapshot) (text string, decoded map[string]any) {
	t.Helper()
	var b bytes.Buffer
	writeJSON(&b, e.look(s, s.Entries))
	if err := json.Unmarshal(b.Bytes(), &decoded); err != nil {
		t.Fatalf("%v: %s", err, &b)
	}
	return b.String(), decoded
}

func TestJSONHasTheDocumentedKeysAndNoOthers(t *testing.T) {
	seen := map[string]map[string]bool{}
	var walk func(place string, value any)
	walk = func(place string, value any) {
		switch v := value.(type) {
		case []any:
			for _, element := range v {
				walk(place, element)
			}
		case map[string]any:
			if seen[place] == nil {
				seen[place] = map[string]bool{}
			}
			for key, inner := range v {
				seen[place][key] = true
				walk(strings.TrimPrefix(place+"."+key, "."), inner)
			}
		}
	}
	_, decoded := encode(t, &encoder{sessions: true, describe: describeSample}, sample())
	walk("", decoded)
	for place, keys := range documented {
		want := strings.Fields(keys)
		for _, key := range want {
			if !seen[place][key] {
				// evidence is of two kinds, and one sample has both
				t.Errorf("%q has no key %q", place, key)
			}
		}
		for key := range seen[place] {
			if !slices.Contains(want, key) {
				t.Errorf("%q has a key %q that is not documented", place, key)
			}
		}
	}
	for place := range maps.Keys(seen) {
		if _, ok := documented[place]; !ok {
			t.Errorf("there is a place %q that is not documented", place)
		}
	}
}

func TestJSONIsExactAndAlwaysUTF8(t *testing.T) {
	s := sample()
	s.Entries[0].Name = "a\x1b[2J<b>\u202e"
	text, decoded := encode(t, &encoder{describe: describeSample}, s)
	if !utf8.ValidString(text) || strings.Contains(text, "\x1b") {
		t.Errorf("not fit for a reader of JSON: %q", text)
	}
	if !strings.Contains(text, "<server>") {
		t.Error("text is escaped for HTML")
	}
	entries := decoded["entries"].([]any)
	if name := entries[0].(map[string]any)["name"]; name != "a\x1b[2J<b>\u202e" {
		t.Errorf("the name is %q", name)
	}
	b64, _ := entries[1].(map[string]any)["path_b64"].(string)
	if path, err := base64.StdEncoding.DecodeString(b64); err != nil || string(path) != "/r/index/k/\xff.lock" {
		t.Errorf("path_b64 is %q: %q, %v", b64, path, err)
	}
	if _, ok := entries[0].(map[string]any)["path_b64"]; ok {
		t.Error("a path that is UTF-8 has path_b64, too")
	}
}

func TestJSONHidesNothingAndMovesNothing(t *testing.T) {
	const name = "a\x7f\u0085\u200b\u202e\u2028\ufeff\U000e0001é\u00a0\U0001f600"
	var b bytes.Buffer
	writeJSON(&b, event{Event: "held", ID: name})
	if want := `"a\u007f\u0085\u200b\u202e\u2028\ufeff\udb40\udc01é` + "\u00a0\U0001f600" + `"`; !strings.Contains(b.String(), want) {
		t.Errorf("got %+q, want %+q in it", b.String(), want)
	}
	var back event
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back.ID != name {
		t.Errorf("%q comes back as %q: %v", name, back.ID, err)
	}
}

func TestSessionIDsAreToldOnRequestOnly(t *testing.T) {
	text, _ := encode(t, &encoder{describe: describeSample}, sample())
	if strings.Contains(text, "secret") || strings.Contains(text, "session_id") {
		t.Error("a session id is told")
	}
}

func TestOnlyLeasesAndLocksAreClaimable(t *testing.T) {
	_, decoded := encode(t, &encoder{describe: describeSample}, sample())
	for _, entry := range decoded["entries"].([]any) {
		e := entry.(map[string]any)
		_, claimable := e["claimable"]
		if want := e["kind"] == "lease" || e["kind"] == "lock"; claimable != want {
			t.Errorf("%v: claimable is there: %v", e["kind"], claimable)
		}
		if flags, ok := e["flags"].([]any); !ok {
			t.Errorf("%v: flags is %v, want a list", e["kind"], flags)
		}
		if evidence, ok := e["evidence"].([]any); !ok || len(evidence) == 0 {
			t.Errorf("%v: no evidence", e["kind"])
		}
	}
}

func TestWaitersAreToldWhereThereAreAny(t *testing.T) {
	text, decoded := encode(t, &encoder{describe: describeSample}, sample())
	if want := `"waiters":[{"pid":9,"how":"poll"},{"pid":11,"how":"flock"}]`; !strings.Contains(text, want) {
		t.Errorf("no %s in %s", want, text)
	}
	if _, ok := decoded["entries"].([]any)[0].(map[string]any)["waiters"]; ok {
		t.Error("an entry that nobody waits for has waiters")
	}
}

func TestProcessesAreDescribedOnceAndOnlyWhenAlive(t *testing.T) {
	s := sample()
	s.Entries = append(s.Entries, s.Entries[0])
	asked := map[int]int{}
	_, decoded := encode(t, &encoder{describe: func(pid int) (proc.Details, bool) {
		asked[pid]++
		return describeSample(pid)
	}}, s)
	if !maps.Equal(asked, map[int]int{42: 1}) {
		t.Errorf("asked for %v", asked)
	}
	var alive []any
	for _, entry := range decoded["entries"].([]any) {
		alive = append(alive, entry.(map[string]any)["holder"].(map[string]any)["process"].(map[string]any)["alive"])
	}
	if want := []any{"yes", "unknown", "unknown", "no", "yes"}; !slices.Equal(alive, want) {
		t.Errorf("alive is %v, want %v", alive, want)
	}
}

func TestEmptyLookHasListsAllTheSame(t *testing.T) {
	var b bytes.Buffer
	writeJSON(&b, (&encoder{}).look(&watch.Snapshot{Time: time.UnixMilli(5)}, nil))
	if got, want := b.String(), `{"schema":1,"now_ms":5,"observer":{"uid":0},"roots":[],"entries":[],"errors":[]}`+"\n"; got != want {
		t.Errorf("got %s want %s", got, want)
	}
}
