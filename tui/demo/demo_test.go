package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/fslock"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/sweep"
)

// Variables that tell a child of the tests to misbehave: the scenario at which it fails or hangs.
const (
	failAt = "DEMO_TEST_FAIL"
	hangAt = "DEMO_TEST_HANG"
	parent = "DEMO_TEST_PARENT"
)

func TestMain(m *testing.M) {
	if args := os.Args; len(args) == 5 && args[1] == childVerb && args[2] == holderVerb {
		switch args[4] {
		case os.Getenv(failAt):
			fmt.Println("out of luck")
			os.Exit(3)
		case os.Getenv(hangAt):
			select {}
		}
	}
	if code, handled := Child(context.Background(), os.Args); handled {
		os.Exit(code)
	}
	if os.Getenv(parent) != "" {
		os.Exit(beParent())
	}
	os.Exit(m.Run())
}

// beParent is a program that shows a playground until it is killed.
func beParent() int {
	p, err := Start(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(p.Root())
	select {}
}

// within waits until f says that it is so.
func within(t *testing.T, bound time.Duration, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}

// start starts a playground in a temporary directory that must be empty in the end.
func start(t *testing.T, only ...string) *Playground {
	t.Helper()
	temp := emptyTemp(t)
	p, err := Start(t.Context(), only)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if filepath.Dir(p.Root()) != temp {
		t.Errorf("the playground %s is not in %s", p.Root(), temp)
	}
	return p
}

// emptyTemp makes an empty directory the one for temporary files, and checks in the end that it is empty again.
func emptyTemp(t *testing.T) string {
	t.Helper()
	temp := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, temp)
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	})
	return temp
}

func TestEveryScenarioIsJudgedAsItIsMeant(t *testing.T) {
	const none = verdict.InUse // neither a lease nor a lock is ever that
	type want struct {
		state verdict.State
		cause string
		when  verdict.When
		flags verdict.Flag
	}
	absent := want{state: none}
	wants := []struct {
		name        string
		lease, lock want
		after       time.Duration // what time makes of both, if nobody does anything
		then        verdict.State
	}{
		{"stopped", want{verdict.Stopped, "", verdict.At, 0}, want{verdict.Stopped, "", verdict.Event, 0}, 0, 0},
		{
			"silent",
			want{verdict.Remote, "", verdict.At, 0},
			want{verdict.Remote, "", verdict.At, 0},
			11 * time.Second, verdict.Expired,
		},
		{
			"unreadable",
			want{verdict.Unreadable, "malformed", verdict.At, 0},
			want{verdict.Unreadable, "not-regular", verdict.Blocked, verdict.IsBlocked},
			0, 0,
		},
		{"live", want{verdict.Live, "", verdict.At, 0}, want{verdict.Live, "", verdict.Event, 0}, 0, 0},
		{"long", absent, want{verdict.Live, "", verdict.Event, verdict.LongHeld}, 0, 0},
		{"legacy", absent, want{verdict.Late, "", verdict.Event, verdict.Legacy}, 0, 0},
		{"expired", want{verdict.Expired, "", verdict.Now, 0}, want{verdict.Expired, "", verdict.Now, 0}, 0, 0},
		{"inside", want{verdict.Free, "", verdict.Blocked, verdict.IsBlocked}, absent, 0, 0},
		{"killed", want{verdict.Dead, "gone", verdict.Now, 0}, want{verdict.Dead, "gone", verdict.Now, 0}, 0, 0},
		{"zombie", want{verdict.Dead, "zombie", verdict.Now, 0}, want{verdict.Dead, "zombie", verdict.Now, 0}, 0, 0},
		{"recycled", absent, want{verdict.Dead, "recycled", verdict.Now, 0}, 0, 0},
		{"blocked", absent, want{verdict.Dead, "gone", verdict.Blocked, verdict.IsBlocked}, 0, 0},
		{
			"remote",
			want{verdict.Remote, "", verdict.At, 0},
			want{verdict.Remote, "", verdict.At, 0},
			time.Minute * 2, verdict.Expired,
		},
		{
			"unknown",
			want{verdict.Unknown, "", verdict.At, 0},
			want{verdict.Unknown, "", verdict.At, 0},
			time.Minute * 2, verdict.Expired,
		},
		{"free", want{verdict.Free, "", verdict.Now, 0}, absent, 0, 0},
		{"litter", absent, absent, 0, 0},
		{"late", want{verdict.Late, "", verdict.At, 0}, want{verdict.Late, "", verdict.Event, 0}, 0, 0},
	}
	p := start(t)
	store := &lease.Store{Dir: filepath.Join(p.Root(), leasesDir)}
	locker := &fslock.Locker{}
	agrees := func(w want, v verdict.Verdict) bool {
		return v.State == w.state && v.Cause == w.cause && v.Claimable.When == w.when && v.Flags == w.flags
	}
	seen := map[string]bool{}
	for _, w := range wants {
		seen[w.name] = true
		if _, err := find(w.name); err != nil {
			continue // not on this system
		}
		t.Run(w.name, func(t *testing.T) {
			l, err := store.Inspect(leaseID(w.name))
			if err != nil {
				t.Fatal(err)
			}
			if w.name == "late" { // and live by turns
				within(t, 20*time.Second, "a late lease", func() bool {
					l, err = store.Inspect(leaseID(w.name))
					return err == nil && l.Verdict.State == verdict.Late
				})
			}
			k := locker.Inspect(lockPath(p.Root(), w.name))
			// What runs out by itself is judged a second before, however long a busy machine took to come here.
			if w.lease.when == verdict.At {
				l.Verdict = l.Facts.Judge(earlier(l.Facts.Look, l.Facts.Expires().Add(-time.Second)))
			}
			if w.lock.when == verdict.At {
				k.Verdict = k.Facts.Judge(earlier(k.Facts.Look, k.Facts.Expires().Add(-time.Second)))
			}
			if w.lease == absent {
				w.lease = want{state: verdict.Free, when: verdict.Now}
			}
			if w.lock == absent {
				w.lock = want{state: verdict.Free, when: verdict.Now}
			}
			if !agrees(w.lease, l.Verdict) {
				t.Errorf("lease: %+v, want %+v", l.Verdict, w.lease)
			}
			if !agrees(w.lock, k.Verdict) {
				t.Errorf("lock: %+v, want %+v", k.Verdict, w.lock)
			}
			if w.after > 0 {
				if v := l.Facts.Judge(l.Facts.Look.Add(w.after)); v.State != w.then {
					t.Errorf("lease after %v: %v, want %v", w.after, v.State, w.then)
				}
				if v := k.Facts.Judge(k.Facts.Look.Add(w.after)); v.State != w.then {
					t.Errorf("lock after %v: %v, want %v", w.after, v.State, w.then)
				}
			}
			switch w.name {
			case "stopped":
				later := l.Facts.Judge(l.Facts.Look.Add(20 * time.Second))
				if later.State != verdict.Expired || !later.Flags.Has(verdict.StoppedFlag) {
					t.Errorf("lease after 20 s: %+v", later)
				}
				if !k.Verdict.Stuck {
					t.Error("a lock of a stopped process is not stuck")
				}
			case "blocked":
				if k.Token == nil || k.Token.State != verdict.Unknown || k.Token.Host != "old-host" || k.Token.PID != 377 {
					t.Errorf("token: %+v", k.Token)
				}
			case "free", "inside":
				if l.Epoch != 3 {
					t.Errorf("last epoch %d, want 3", l.Epoch)
				}
			case "unreadable":
				if l.Facts.Counter.Value != 1 || !l.Facts.Problem.Torn {
					t.Errorf("counter %+v, problem %+v", l.Facts.Counter, l.Facts.Problem)
				}
			case "litter":
				temps, err := filepath.Glob(filepath.Join(filepath.Dir(k.Path), ".*.tmp.*"))
				if err != nil || len(temps) != 1 {
					t.Fatalf("temps: %v %v", temps, err)
				}
				if v := locker.InspectTemp(temps[0]).Verdict; v.State != verdict.Litter || v.Cause != "gone" {
					t.Errorf("temp: %+v", v)
				}
			}
		})
	}
	for _, s := range Scenarios() {
		if !seen[s.Name] {
			t.Errorf("scenario %s is not tested", s.Name)
		}
		if s.Says == "" || !strings.HasSuffix(s.Says, ".") {
			t.Errorf("scenario %s says %q", s.Name, s.Says)
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func TestHoldersRenewInPlaceAndAtTheSameLength(t *testing.T) {
	p := start(t, "live", "remote")
	store := &lease.Store{Dir: filepath.Join(p.Root(), leasesDir)}
	for _, name := range []string{"live", "remote"} {
		path := lockPath(p.Root(), name)
		before, err := record.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		first, err := store.Inspect(leaseID(name))
		if err != nil {
			t.Fatal(err)
		}
		within(t, 4*beatEvery, name+": a heartbeat and a renewal", func() bool {
			after, err := record.Read(path)
			if err != nil || after.Stat.Ino != before.Stat.Ino || len(after.Data) != padded {
				t.Fatalf("%s: %+v %v", path, after, err)
			}
			next, err := store.Inspect(leaseID(name))
			if err != nil || next.Facts.Record == nil || next.Facts.Record.ClaimID != first.Facts.Record.ClaimID {
				t.Fatalf("%s: %+v %v", name, next, err)
			}
			return !bytes.Equal(before.Data, after.Data) &&
				next.Facts.Record.RenewedAtMS > first.Facts.Record.RenewedAtMS
		})
	}
}

func TestThePlaygroundIsBothSystemsAtOnce(t *testing.T) {
	p := start(t, "live", "blocked", "litter", "unreadable")
	layout, err := sweep.Recognise(p.Root())
	if err != nil || layout.Kind != sweep.AgentMux|sweep.AFT {
		t.Fatalf("%+v %v, want both kinds", layout, err)
	}
	found := layout.Find(t.Context())
	if len(found.Locks) != 4 || len(found.Tokens) != 1 || len(found.Temps) != 1 || len(found.Errors) != 0 {
		t.Errorf("found %+v", found)
	}
	names := &sweep.Names{Layout: layout}
	if name := names.Of(lockPath(p.Root(), "live")); name.Short != "live-app" {
		t.Errorf("the lock of live-app is known as %+v", name)
	}
}

func TestOnlyTheNamedScenariosAreThere(t *testing.T) {
	p := start(t, "killed", "free", "killed")
	infos, err := (&lease.Store{Dir: filepath.Join(p.Root(), leasesDir)}).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, info := range infos {
		ids = append(ids, info.ID)
	}
	if want := []string{"free-agent", "killed-agent"}; !slices.Equal(ids, want) {
		t.Errorf("leases %v, want %v", ids, want)
	}
}

func TestUnknownScenarioIsToldWithWhatThereIs(t *testing.T) {
	emptyTemp(t)
	_, err := Start(t.Context(), []string{"live", "haunted"})
	unknown, ok := errors.AsType[*ScenarioError](err)
	if !ok || unknown.Name != "haunted" {
		t.Fatalf("got %v", err)
	}
	for _, s := range Scenarios() {
		if !strings.Contains(err.Error(), s.Name) {
			t.Errorf("%q does not name %s", err, s.Name)
		}
	}
}

func TestAScenarioThatCannotBePlayedFailsTheStart(t *testing.T) {
	defer goleak.VerifyNone(t)
	emptyTemp(t)
	t.Setenv(failAt, "killed")
	_, err := Start(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "scenario killed: ") || !strings.Contains(err.Error(), "out of luck") {
		t.Fatalf("got %v", err)
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	defer goleak.VerifyNone(t)
	emptyTemp(t)
	t.Setenv(hangAt, "late")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := Start(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
}

func TestStartAfterItsContextEndedDoesNothing(t *testing.T) {
	emptyTemp(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

func TestNoRoomForAPlayground(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, missing)
	}
	if _, err := Start(t.Context(), nil); err == nil || !strings.Contains(err.Error(), missing) {
		t.Fatalf("got %v", err)
	}
}

func TestThePlaygroundOutlivesTheContextOfItsStart(t *testing.T) {
	emptyTemp(t)
	ctx, cancel := context.WithCancel(t.Context())
	p, err := Start(ctx, []string{"free"})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := os.Stat(p.Root()); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatOthersPutIntoThePlaygroundGoesWithIt(t *testing.T) {
	p := start(t, "free")
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(p.Root(), "a", "b", "c")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	_ = os.Symlink(filepath.Dir(precious), filepath.Join(deep, "link"))
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error("a link in the playground was followed")
	}
}

func TestOnlyAGroundOfOursIsRemoved(t *testing.T) {
	temp := t.TempDir()
	other := filepath.Join(temp, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := func(what string) {
		t.Helper()
		if err := removeGround(other, "nonce"); err == nil {
			t.Errorf("%s: no error", what)
		}
		if _, err := os.Stat(filepath.Join(other, "precious")); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("no marker")
	if err := os.WriteFile(filepath.Join(other, markerName), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("another's marker")
	if err := os.WriteFile(filepath.Join(other, markerName), []byte("nonce"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := removeGround(other, "nonce"); err != nil {
		t.Fatal(err)
	}
	if err := removeGround(other, "nonce"); err != nil {
		t.Errorf("removing what is not there: %v", err)
	}
}

func TestTheHiddenVerbIsNoVerbForPeople(t *testing.T) {
	for _, args := range [][]string{nil, {"holdfast"}, {"holdfast", childVerb, holderVerb, "/tmp", "live"}} {
		if _, handled := Child(t.Context(), args); handled {
			t.Errorf("%q was taken for a child", args)
		}
	}
}
