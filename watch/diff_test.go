package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// made is a subject of which a test says everything.
type made struct{ holder *verdict.Holder }

func (m made) Judge(time.Time) verdict.Verdict { return verdict.Verdict{} }
func (m made) Holder() *verdict.Holder         { return m.holder }

func TestEachChangeHasItsEvent(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	held := Entry{
		Kind: Lock, Root: "/r", Path: "/r/a.lock", Raw: []byte("beat 1"),
		Subject: made{&verdict.Holder{PID: 7, WriterEpoch: "w1", Acquired: now}},
		Verdict: verdict.Verdict{State: verdict.Live, Sentence: "held", Claimable: verdict.Claimable{When: verdict.Event}},
	}
	with := func(change func(e *Entry)) *Entry {
		e := held
		change(&e)
		return &e
	}
	holder := func(h verdict.Holder) func(*Entry) { return func(e *Entry) { e.Subject = made{&h} } }
	free := with(func(e *Entry) {
		e.Subject, e.Raw, e.Verdict = made{}, nil, verdict.Verdict{State: verdict.Free, Claimable: verdict.Claimable{When: verdict.Now}}
	})
	torn := with(func(e *Entry) { e.Subject, e.Raw, e.Verdict.State = made{}, []byte("{"), verdict.Unreadable })
	unnamed := with(holder(verdict.Holder{PID: 7, Host: "h", Acquired: now}))
	at := func(t time.Time) *Entry {
		return with(func(e *Entry) { e.Verdict.Claimable = verdict.Claimable{When: verdict.At, At: t} })
	}
	token := func(tok verdict.Token) *Entry { return with(func(e *Entry) { e.Token = &tok }) }
	for _, c := range []struct {
		name     string
		from, to *Entry
		want     string
	}{
		{"nothing", &held, &held, ""},
		{"it appears", nil, &held, Appeared},
		{"it goes", &held, nil, Gone},
		{"a beat", &held, with(func(e *Entry) { e.Raw = []byte("beat 2") }), Renewed},
		{"a beat moves when it clears", at(now), with(func(e *Entry) {
			e.Raw, e.Verdict.Claimable = []byte("beat 2"), verdict.Claimable{When: verdict.At, At: now.Add(5 * time.Second)}
		}), Renewed},
		{"only the words differ", &held, with(func(e *Entry) { e.Verdict.Sentence = "held longer" }), ""},
		{"only the reckoning differs", at(now), at(now.Add(time.Millisecond)), ""},
		{"state", &held, with(func(e *Entry) { e.Verdict.State = verdict.Late }), Changed},
		{"cause", &held, with(func(e *Entry) { e.Verdict.Cause = "gone" }), Changed},
		{"flags", &held, with(func(e *Entry) { e.Verdict.Flags = verdict.LongHeld }), Changed},
		{"claimable", &held, at(now), Changed},
		{"who blocks", &held, with(func(e *Entry) { e.Verdict.Claimable.By = "pid 9" }), Changed},
		{"epoch", &held, with(func(e *Entry) { e.Epoch = 9 }), Changed},
		{"a token comes", &held, token(verdict.Token{State: verdict.Dead}), Changed},
		{"a token changes", token(verdict.Token{State: verdict.Alive}), token(verdict.Token{State: verdict.Dead}), Changed},
		{"another nonce", &held, with(holder(verdict.Holder{PID: 7, WriterEpoch: "w2", Acquired: now})), Taken},
		{"another claim id", with(holder(verdict.Holder{ClaimID: "c1"})), with(holder(verdict.Holder{ClaimID: "c2"})), Taken},
		{"the same nonce elsewhere", &held, with(holder(verdict.Holder{PID: 8, WriterEpoch: "w1"})), ""},
		{"no nonce, same holder", unnamed, unnamed, ""},
		{"no nonce, another pid", unnamed, with(holder(verdict.Holder{PID: 8, Host: "h", Acquired: now})), Taken},
		{"no nonce, another host", unnamed, with(holder(verdict.Holder{PID: 7, Host: "i", Acquired: now})), Taken},
		{"no nonce, taken anew", unnamed, with(holder(verdict.Holder{PID: 7, Host: "h", Acquired: now.Add(time.Second)})), Taken},
		{"free, then held", free, &held, Taken},
		{"held, then free", &held, free, Changed},
		{"torn, then read", torn, &held, Changed},
		{"read, then torn", &held, torn, Changed},
		{"no subject", with(func(e *Entry) { e.Subject = nil }), with(func(e *Entry) { e.Subject, e.Raw = nil, nil }), Renewed},
	} {
		t.Run(c.name, func(t *testing.T) {
			snapshot := func(e *Entry, at time.Time) *Snapshot {
				s := &Snapshot{Time: at}
				if e != nil {
					s.Entries = []*Entry{e}
				}
				return s
			}
			later := now.Add(time.Second)
			changes := Diff(snapshot(c.from, now), snapshot(c.to, later))
			if c.want == "" {
				if len(changes) != 0 {
					t.Errorf("got %+v", changes)
				}
				return
			}
			if len(changes) != 1 || changes[0].Event != c.want {
				t.Fatalf("got %+v, not %s", changes, c.want)
			}
			got := changes[0]
			if got.Kind != Lock || got.Root != "/r" || got.Path != "/r/a.lock" || !got.Time.Equal(later) {
				t.Errorf("got %+v", got)
			}
			if c.from != nil && got.From != c.from.Verdict.State {
				t.Errorf("from %v", got.From)
			}
			if c.to != nil && (got.To != c.to.Verdict.State || got.Cause != c.to.Verdict.Cause || got.Sentence != c.to.Verdict.Sentence) {
				t.Errorf("got %+v", got)
			}
			if c.want == Gone && (got.Holder == nil || got.Holder.PID != 7 || got.Sentence == "") {
				t.Errorf("who had it is not told: %+v", got)
			}
		})
	}
}

func TestWhatIsGoneSaysWhy(t *testing.T) {
	for _, e := range []Entry{
		{Kind: Lease},
		{Kind: Lock, Verdict: verdict.Verdict{State: verdict.Live}},
		{Kind: Lock, Verdict: verdict.Verdict{State: verdict.Free}},
		{Kind: Token},
		{Kind: Temp},
	} {
		changes := Diff(&Snapshot{Entries: []*Entry{&e}}, nil)
		if len(changes) != 1 || changes[0].Event != Gone || changes[0].Sentence == "" {
			t.Errorf("%v: %+v", e.Kind, changes)
		}
	}
}

func TestChangesOfRootsAndPlacesAreWatchEvents(t *testing.T) {
	good := Root{Path: "/r", Kind: "aft", Watch: eventMode, FS: "ext4", Local: true}
	with := func(change func(r *Root)) Root {
		r := good
		change(&r)
		return r
	}
	missing := Root{Path: "/r", Kind: "missing", Watch: "none", Reason: "nothing there"}
	for _, c := range []struct {
		from, to Root
		want     string
	}{
		{good, good, ""},
		{good, missing, "This root is missing: nothing there. It is waited for."},
		{missing, good, "This root is there now (aft), watched by " + eventMode + "."},
		{
			good, with(func(r *Root) { r.Watch, r.Reason = pollMode, "the limit is reached" }),
			"This root is watched by poll: the limit is reached.",
		},
		{good, with(func(r *Root) { r.Kind = "plain" }), "This root is plain now."},
		{good, with(func(r *Root) { r.FS = "tmpfs" }), "This root lies on tmpfs now."},
		{
			good, with(func(r *Root) { r.place, r.Kind = place{dev: 1, ino: 2}, "plain" }),
			"Another directory is in this root's place now (plain), watched by " + eventMode + ".",
		},
		{good, with(func(r *Root) { r.place, r.Kind = place{dev: 1, ino: 2}, "file" }), "This root is file now."},
	} {
		changes := Diff(&Snapshot{Roots: []Root{c.from}}, &Snapshot{Roots: []Root{c.to}})
		if c.want == "" {
			if len(changes) != 0 {
				t.Errorf("got %+v", changes)
			}
			continue
		}
		if len(changes) != 1 || changes[0].Event != Watch || changes[0].Path != "/r" || changes[0].Sentence != c.want {
			t.Errorf("got %+v, not %s", changes, c.want)
		}
	}
	bad := func(path, what string) EntryError { return EntryError{Path: path, Err: errors.New(what)} }
	changes := Diff(
		&Snapshot{Errors: []EntryError{bad("/same", "x"), bad("/other", "x"), bad("/well", "x")}},
		&Snapshot{Errors: []EntryError{bad("/same", "x"), bad("/other", "y"), bad("/new", "x")}},
	)
	var told []string
	for _, c := range changes {
		told = append(told, fmt.Sprintf("%s %s %s", c.Event, c.Path, c.Sentence))
	}
	want := []string{
		"watch /other Cannot be looked at: y.", "watch /new Cannot be looked at: x.", "watch /well Can be looked at again.",
	}
	if !slices.Equal(told, want) {
		t.Errorf("got %q", told)
	}
}

// A drawn snapshot is small and of few values, so that two of them have much in common.
func drawSnapshot(t *rapid.T) *Snapshot {
	s := &Snapshot{Time: time.Unix(1_800_000_000, 0)}
	for _, path := range []string{"/r", "/q"} {
		s.Roots = append(s.Roots, Root{
			Path:  path,
			Kind:  rapid.SampledFrom([]string{"aft", "missing"}).Draw(t, "kind"),
			Watch: rapid.SampledFrom([]string{eventMode, pollMode}).Draw(t, "watch"),
		})
	}
	for _, kind := range []Kind{Lease, Lock, Token, Temp} {
		for i := range 3 {
			if rapid.Bool().Draw(t, "absent") {
				continue
			}
			e := Entry{Kind: kind, Root: "/r", Path: fmt.Sprintf("/r/%v-%d", kind, i)}
			e.Raw = rapid.SampledFrom([][]byte{nil, []byte("1"), []byte("2")}).Draw(t, "raw")
			e.Epoch = rapid.Uint64Range(0, 1).Draw(t, "epoch")
			e.Verdict.State = verdict.State(rapid.IntRange(0, int(verdict.Litter)).Draw(t, "state"))
			e.Verdict.Flags = verdict.Flag(rapid.Uint16Range(0, 3).Draw(t, "flags"))
			e.Verdict.Claimable.When = verdict.When(rapid.IntRange(0, 3).Draw(t, "when"))
			subject := made{}
			if rapid.Bool().Draw(t, "holder") {
				subject.holder = &verdict.Holder{
					PID: rapid.Uint32Range(1, 2).Draw(t, "pid"), ClaimID: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "nonce"),
				}
			}
			e.Subject = subject
			s.Entries = append(s.Entries, &e)
		}
	}
	return s
}

func TestDiffTellsExactlyWhatDiffers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawSnapshot(t), drawSnapshot(t)
		if changes := Diff(a, a); len(changes) != 0 {
			t.Fatalf("a snapshot differs from itself: %+v", changes)
		}
		changes := Diff(a, b)
		if same(a, b) && !slices.ContainsFunc(changes, func(c Change) bool { return c.Event == Taken }) && len(changes) != 0 {
			t.Fatalf("the same differ: %+v", changes)
		}
		if !same(a, b) && len(changes) == 0 {
			t.Fatal("what differs has no event")
		}
		had, has, seen := make(map[key]*Entry), make(map[key]*Entry), make(map[key]bool)
		for i := range a.Entries {
			had[keyOf(a.Entries[i])] = a.Entries[i]
		}
		for i := range b.Entries {
			has[keyOf(b.Entries[i])] = b.Entries[i]
		}
		for _, c := range changes {
			k := key{c.Kind, c.Path}
			if seen[k] {
				t.Fatalf("%s has two events", c.Path)
			}
			seen[k] = true
			if c.Event == Watch {
				continue
			}
			if (c.Event == Appeared) != (had[k] == nil) || (c.Event == Gone) != (has[k] == nil) {
				t.Fatalf("%s is no right event: %+v", c.Event, c)
			}
		}
		for k := range had {
			if has[k] == nil && !seen[k] {
				t.Fatalf("%s went without a word", k.path)
			}
		}
		for k := range has {
			if had[k] == nil && !seen[k] {
				t.Fatalf("%s came without a word", k.path)
			}
		}
		// The way back tells of the same entries.
		back := Diff(b, a)
		if len(back) != len(changes) {
			t.Fatalf("%d changes one way, %d the other", len(changes), len(back))
		}
	})
}

func TestSubjectsOfAnotherMakeAreLeftAlone(t *testing.T) {
	e := Entry{Kind: Lock, Subject: made{}}
	if len(sightsOf(&e)) != 0 || recorded(e.Subject) != 0 || ahead(&e) || !ripe(&e).IsZero() || !e.Beat().IsZero() {
		t.Error("something was read out of it")
	}
	for _, s := range []verdict.Subject{&verdict.LeaseFacts{}, &verdict.LockFacts{}, &verdict.TokenFacts{}, &verdict.TempFacts{}} {
		if (&Entry{Subject: s}).Seen() == nil {
			t.Errorf("%T is not seen", s)
		}
	}
	// A zombie that cannot be seen is known by the pid that its record names.
	zombie := &verdict.LockFacts{Record: &record.Lock{PID: 9}}
	zombie.Proc = proc.Finding{Answer: proc.Dead, Cause: proc.Zombie}
	sights := sightsOf(&Entry{Kind: Lock, Subject: zombie})
	if len(sights) != 1 || sights[0].pid != 9 {
		t.Errorf("got %+v", sights)
	}
}

func TestKindsHaveNames(t *testing.T) {
	for k, want := range map[Kind]string{Lease: "lease", Lock: "lock", Token: "token", Temp: "temp", 0: "unknown"} {
		if k.String() != want {
			t.Errorf("%d is %q", k, k)
		}
	}
}

// A directory that may not be looked at any more has lost nothing: what was in it is out of sight.
func TestWhatIsOutOfSightIsNotGone(t *testing.T) {
	was := &Snapshot{
		Entries: []*Entry{{Kind: Lock, Path: "/root/sub/a.lock"}, {Kind: Lock, Path: "/root/subs/b.lock"}},
		Errors:  []EntryError{{Path: "/root/sub/deep", Err: fs.ErrPermission}},
	}
	is := &Snapshot{Errors: []EntryError{{Path: "/root/sub", Err: fs.ErrPermission}}}
	var got []string
	for _, c := range Diff(was, is) {
		got = append(got, c.Event+" "+c.Path)
	}
	if want := []string{"watch /root/sub", "gone /root/subs/b.lock"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
