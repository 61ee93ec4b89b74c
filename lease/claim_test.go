package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

func TestFirstClaim(t *testing.T) {
	s := store(t)
	l := granted(t, s, sameOwner("block-1"), 1)
	if l.ID() != agent || l.Path() != s.path(agent, leaseSuffix) {
		t.Errorf("a handle of %s at %s", l.ID(), l.Path())
	}
	inspect(t, s, want{state: verdict.Live, when: verdict.At, in: 15 * sec, flags: verdict.Mine})
	mine(t, l)
}

func TestClaimantsWithoutNamesAreNobodysTwins(t *testing.T) {
	s := store(t)
	first := granted(t, s, Claimant{}, 1)
	r := readLease(t, s)
	if r.OwnerBootID == "" || r.BlockID == "" || r.OwnerBootID == r.BlockID || r.SessionID != nil {
		t.Errorf("recorded as %+v", r)
	}
	refused(t, s, Claimant{}, "held")
	mine(t, first)
}

func TestOwnClaimAgainKeepsTheEpoch(t *testing.T) {
	s := store(t)
	first := granted(t, s, Claimant{Owner: "owner-a", Block: "block-1", Session: "s-1", Channel: "old"}, 1)
	was := readLease(t, s)
	second := granted(t, s, Claimant{Owner: "owner-a", Block: "block-1", Channel: "new"}, 1)
	is := readLease(t, s)
	if is.SessionID != nil || is.Channel != "new" || is.AcquiredAtMS < was.AcquiredAtMS {
		t.Errorf("not rewritten: %+v", is)
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	mine(t, second)
	lost(t, first, "owner-a")
}

func TestOwnClaimAgain(t *testing.T) {
	own := func(r *record.Lease) { r.PID, r.PIDStartS = selfPID, r.PIDStartS+2940 } // process 1000 started 49 minutes later
	for name, tc := range map[string]struct {
		recorded uint64
		counter  string
		age      time.Duration
		epoch    uint64
		after    string
	}{
		"the counter agrees":                      {5, "5\n", 3 * sec, 5, "5\n"},
		"the counter is behind, and is raised":    {5, "3\n", 3 * sec, 5, "5\n"},
		"the counter is damaged, and is repaired": {5, "x", 3 * sec, 5, "5\n"},
		"the counter is missing, and is made":     {5, "", 3 * sec, 5, "5\n"},
		"the counter is ahead":                    {5, "7\n", 3 * sec, 8, "8\n"},
		"an old build knew no epochs":             {0, "", 3 * sec, 1, "1\n"},
		"expired, yet its own":                    {5, "5\n", 60 * sec, 5, "5\n"},
		"the last epoch there is":                 {1<<64 - 1, "18446744073709551615\n", 3 * sec, 1<<64 - 1, "18446744073709551615\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var log logged
			s := store(t)
			s.Log = log.logger()
			putLease(t, s, tc.age, own, withEpoch(tc.recorded))
			if tc.counter != "" {
				putCounter(t, s, tc.counter)
			}
			granted(t, s, sameOwner("block-1"), tc.epoch)
			if got := readCount(t, s); got != tc.after {
				t.Errorf("the counter is %q, want %q", got, tc.after)
			}
			if got := log.lines(); len(got) != 0 {
				t.Errorf("taking one's own is no news: %q", got)
			}
		})
	}
	t.Run("an old build recorded no block: any of the owner's", func(t *testing.T) {
		s := store(t)
		putLease(t, s, 3*sec, own, func(r *record.Lease) { r.BlockID = "" })
		granted(t, s, sameOwner("block-7"), 5)
	})
}

func TestExpiryByAStoresOwnTTL(t *testing.T) {
	s := store(t)
	s.TTL = 60 * sec
	putLease(t, s, 40*sec)
	inspect(t, s, want{state: verdict.Late, when: verdict.At, in: 20 * sec})
	refused(t, s, other("owner-b"), "held")
	s.TTL = 30 * sec
	inspect(t, s, want{state: verdict.Expired, when: verdict.Now})
	var log logged
	s.Log = log.logger()
	granted(t, s, other("owner-b"), 6)
	if got := log.lines(); !slices.Equal(got, []string{`level=WARN msg="reclaimed lease" id=agent-1 state=expired cause="" pid=4242`}) {
		t.Errorf("logged %q", got)
	}
}

func TestEpochsGrowAcrossReleaseAndTakeover(t *testing.T) {
	s := store(t)
	var last uint64
	for i := range 20 {
		l := granted(t, s, other(fmt.Sprintf("owner-%d", i)), last+1)
		last = l.Epoch()
		if i%2 == 0 {
			if err := l.Release(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		r := readLease(t, s)
		r.PID = deadPID
		r.Ours = record.Ours{}
		put(t, s, leaseSuffix, r.Encode(), 0)
	}
}

func TestEpochAtItsMaximum(t *testing.T) {
	for name, lay := range map[string]func(*Store){
		"by the counter": func(s *Store) { putCounter(t, s, "18446744073709551615\n") },
		"by the record":  func(s *Store) { putLease(t, s, 20*sec, withEpoch(1<<64-1)); putCounter(t, s, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t)
			lay(s)
			writesNothing(t, s.Dir, func() {
				if _, err := s.Claim(t.Context(), agent, other("owner-b")); !errors.Is(err, ErrEpoch) || !strings.Contains(err.Error(), "maximum") {
					t.Errorf("refused: %v", err)
				}
			})
		})
	}
	t.Run("the last but one is given out", func(t *testing.T) {
		s := store(t)
		putCounter(t, s, "18446744073709551614\n")
		granted(t, s, other("owner-b"), 1<<64-1)
	})
}

func TestCounterMissingBesideAnUnreadableLease(t *testing.T) {
	s := store(t)
	put(t, s, leaseSuffix, []byte("not json"), 5*sec)
	inspect(t, s, want{state: verdict.Unreadable, cause: "malformed", when: verdict.Blocked, flags: verdict.IsBlocked})
	refused(t, s, other("owner-b"), "held")
	if h, err := s.LiveHolder(agent, "owner-b"); err != nil || h == nil {
		t.Errorf("a fresh file that nobody can read is held: %+v (%v)", h, err)
	}
	put(t, s, leaseSuffix, []byte("not json"), 16*sec)
	writesNothing(t, s.Dir, func() {
		if _, err := s.Claim(t.Context(), agent, other("owner-b")); !errors.Is(err, ErrEpoch) {
			t.Errorf("refused: %v", err)
		}
	})
	if h, err := s.LiveHolder(agent, "owner-b"); err != nil || h != nil {
		t.Errorf("nobody rewrote it: %+v (%v)", h, err)
	}
}

func TestReleaseIsIdempotent(t *testing.T) {
	s := store(t)
	l := granted(t, s, sameOwner("block-1"), 1)
	for range 3 {
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(l.Path()); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the lease is still there: %v", err)
		}
	}
	if isClosed(l.Lost()) {
		t.Error("giving up is no loss")
	}
	lost(t, l, "")
	next := granted(t, s, other("owner-b"), 2)
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	mine(t, next)
}

func TestReleaseOfWhatNobodyCanRead(t *testing.T) {
	s := store(t)
	l := granted(t, s, sameOwner("block-1"), 1)
	put(t, s, leaseSuffix, []byte("not json"), 0)
	writesNothing(t, s.Dir, func() {
		if err := l.Release(); err != nil {
			t.Errorf("it is not provably ours, so there is nothing to release: %v", err)
		}
		for name, err := range map[string]error{"verify": l.Verify(t.Context()), "renew": l.Renew(t.Context())} {
			if e, ok := errors.AsType[*ConflictError](err); !ok || !errors.Is(err, ErrUnreadable) || errors.Is(err, ErrLost) || e.Op != name {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestLiveHolder(t *testing.T) {
	for name, tc := range map[string]struct {
		lay  func(*Store)
		own  string
		held bool
	}{
		"nobody":               {func(*Store) {}, "owner-b", false},
		"another owner":        {func(s *Store) { putLease(t, s, 3*sec) }, "owner-b", true},
		"another, overdue":     {func(s *Store) { putLease(t, s, 14*sec) }, "owner-b", true},
		"oneself":              {func(s *Store) { putLease(t, s, 3*sec) }, "owner-a", false},
		"expired":              {func(s *Store) { putLease(t, s, 16*sec) }, "owner-b", false},
		"dead":                 {func(s *Store) { putLease(t, s, 3*sec, byPID(deadPID)) }, "owner-b", false},
		"another machine":      {func(s *Store) { putLease(t, s, 3*sec, byPID(deadPID), onHost("web02")) }, "owner-b", true},
		"old build":            {func(s *Store) { putLease(t, s, 3*sec, julyFormat) }, "owner-b", true},
		"malformed":            {func(s *Store) { put(t, s, leaseSuffix, []byte("{"), 3*sec) }, "owner-b", true},
		"malformed, abandoned": {func(s *Store) { put(t, s, leaseSuffix, []byte("{"), 16*sec) }, "owner-b", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t)
			tc.lay(s)
			writesNothing(t, s.Dir, func() {
				h, err := s.LiveHolder(agent, tc.own)
				if err != nil || (h != nil) != tc.held {
					t.Fatalf("held by %+v (%v)", h, err)
				}
				if h != nil && h.PID != 0 && (h.Channel != "local-main-aaaaaa-bbbbbbbb" && h.Channel != "") {
					t.Errorf("held by %+v", h)
				}
			})
		})
	}
	if h, err := (&Store{Dir: t.TempDir() + "/missing"}).LiveHolder(agent, "owner-b"); h != nil || err != nil {
		t.Errorf("without a directory: %+v (%v)", h, err)
	}
}

func TestHandleAndARecordWithoutAClaimID(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*record.Lease)
		ours   bool
	}{
		"of its own block":           {func(*record.Lease) {}, true},
		"of no block":                {func(r *record.Lease) { r.BlockID = "" }, true},
		"of another block":           {func(r *record.Lease) { r.BlockID = "block-2" }, false},
		"of another owner":           {func(r *record.Lease) { r.OwnerBootID = "owner-b" }, false},
		"of another owner, no block": {func(r *record.Lease) { r.OwnerBootID, r.BlockID = "owner-b", "" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t)
			l := granted(t, s, sameOwner("block-1"), 1)
			r := readLease(t, s)
			r.ClaimID = ""
			tc.change(&r)
			put(t, s, leaseSuffix, r.Encode(), 0)
			if !tc.ours {
				lost(t, l, r.OwnerBootID)
				return
			}
			mine(t, l)
			if err := l.Release(); err != nil {
				t.Fatal(err)
			}
			inspect(t, s, want{state: verdict.Free, when: verdict.Now})
		})
	}
}

func TestClaimantReleasesWhateverProcessIsRecorded(t *testing.T) {
	s := store(t)
	l := granted(t, s, sameOwner("block-1"), 1)
	r := readLease(t, s)
	r.PID, r.Ours = holderPID, record.Ours{}
	r.PIDStartS -= 2940
	put(t, s, leaseSuffix, r.Encode(), 0)
	inspect(t, s, want{state: verdict.Live, when: verdict.At, in: 15 * sec})
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	inspect(t, s, want{state: verdict.Free, when: verdict.Now})
}

func TestRebuiltHandle(t *testing.T) {
	s := store(t)
	l := granted(t, s, sameOwner("block-1"), 1)
	again, err := s.Handle(agent, l.ClaimID())
	if err != nil || again.ClaimID() != l.ClaimID() || again.Epoch() != 0 {
		t.Fatalf("%+v (%v)", again, err)
	}
	mine(t, again)
	wrong, _ := s.Handle(agent, "another")
	lost(t, wrong, "owner-a")
	if err := again.Release(); err != nil {
		t.Errorf("its own process may release it: %v", err)
	}
	lost(t, l, "")
}

func TestRebuiltHandleNeverMatchesARecordWithoutAClaimID(t *testing.T) {
	s := store(t)
	putLease(t, s, 3*sec, julyFormat)
	for _, claim := range []string{"", "claim-a"} {
		l, err := s.Handle(agent, claim)
		if err != nil {
			t.Fatal(err)
		}
		lost(t, l, "owner-a")
	}
}

func TestRebuiltHandleDoesNotReleaseALivingProcess(t *testing.T) {
	for name, tc := range map[string]struct {
		age  time.Duration
		mods []func(*record.Lease)
		ok   bool
	}{
		"runs":            {3 * sec, nil, false},
		"overdue":         {14 * sec, nil, false},
		"another machine": {3 * sec, []func(*record.Lease){onHost("web02")}, false},
		"expired, runs":   {16 * sec, nil, false},
		"expired, remote": {16 * sec, []func(*record.Lease){onHost("web02")}, true},
		"dead":            {3 * sec, []func(*record.Lease){byPID(deadPID)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t)
			putLease(t, s, tc.age, tc.mods...)
			l, err := s.Handle(agent, "claim-a")
			if err != nil {
				t.Fatal(err)
			}
			if tc.ok {
				if err := l.Release(); err != nil {
					t.Fatal(err)
				}
				if got := readCount(t, s); got != "5\n" {
					t.Errorf("the epoch died with the lease: counter %q", got)
				}
				inspect(t, s, want{state: verdict.Free, when: verdict.Now})
				return
			}
			writesNothing(t, s.Dir, func() {
				err := l.Release()
				if e, ok := errors.AsType[*ConflictError](err); !ok || !errors.Is(err, ErrHolderAlive) || e.Op != "release" || e.Holder == nil || !strings.Contains(err.Error(), "which names pid") {
					t.Errorf("released: %v", err)
				}
			})
		})
	}
}

func TestReadOnlyStoreChangesNothing(t *testing.T) {
	s := store(t)
	l := granted(t, s, sameOwner("block-1"), 1)
	ro := &Store{Dir: s.Dir, Table: s.Table, ReadOnly: true}
	again, err := ro.Handle(agent, l.ClaimID())
	if err != nil {
		t.Fatal(err)
	}
	writesNothing(t, s.Dir, func() {
		_, claim := ro.Claim(t.Context(), agent, other("owner-b"))
		for op, err := range map[string]error{"claim": claim, "renew": again.Renew(t.Context()), "keep": again.Keep(t.Context()), "release": again.Release()} {
			e, ok := errors.AsType[*IOError](err)
			if !ok || !errors.Is(err, ErrReadOnly) || e.Op != op || err.Error() != op+" lease agent-1: read-only" {
				t.Errorf("%s: %v", op, err)
			}
		}
		if err := again.Verify(t.Context()); err != nil {
			t.Errorf("looking is no change: %v", err)
		}
		inspect(t, ro, want{state: verdict.Live, when: verdict.At, in: 15 * sec, flags: verdict.Mine})
	})
	if _, err := ro.Claim(t.Context(), "..", other("owner-b")); !errors.Is(err, ErrBadID) {
		t.Errorf("a bad id: %v", err)
	}
}

func TestMissingDirectory(t *testing.T) {
	s := &Store{Dir: t.TempDir() + "/missing"}
	_, claim := s.Claim(t.Context(), agent, other("owner-b"))
	_, look := s.Inspect(agent)
	for op, err := range map[string]error{"claim": claim, "inspect": look} {
		if e, ok := errors.AsType[*IOError](err); !ok || !errors.Is(err, fs.ErrNotExist) || e.Op != op || !strings.Contains(err.Error(), s.Dir) {
			t.Errorf("%s: %v", op, err)
		}
	}
	if infos, err := s.List(t.Context()); err != nil || len(infos) != 0 {
		t.Errorf("listed %v (%v)", infos, err)
	}
}

func TestTextThatIsNoUTF8IsStillOnesOwn(t *testing.T) {
	s := store(t)
	l, err := s.Claim(t.Context(), agent, Claimant{Owner: "own\xffer", Block: "b\xc3l", Session: "\xfe"})
	if err != nil {
		t.Fatal(err)
	}
	mine(t, l)
	if r := readLease(t, s); r.OwnerBootID != "own\ufffder" || r.BlockID != "b\ufffdl" || *r.SessionID != "\ufffd" {
		t.Errorf("recorded as %+v", r)
	}
}

func TestRecordThatNobodyWouldReadIsNotWritten(t *testing.T) {
	s := store(t)
	long := strings.Repeat("x", record.MaxSize)
	if _, err := s.Claim(t.Context(), agent, Claimant{Owner: "owner-a", Block: "block-1", Channel: long}); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Fatalf("claimed: %v", err)
	}
	inspect(t, s, want{state: verdict.Free, when: verdict.Now})
	// A record that was read may grow by what a renewal adds.
	l := granted(t, s, Claimant{Owner: "owner-a", Block: "block-1"}, 2)
	r := readLease(t, s)
	r.Ours = record.Ours{}
	r.Extra = []record.Extra{{Key: "x", Raw: []byte(`"` + long[:record.MaxSize-len(r.Encode())-20] + `"`)}}
	put(t, s, leaseSuffix, r.Encode(), 0)
	if err := l.Renew(t.Context()); err == nil || errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "too large") {
		t.Errorf("renewed: %v", err)
	}
	if err := l.Verify(t.Context()); err != nil {
		t.Errorf("it is still there: %v", err)
	}
}

func TestEndedContextLooksAtNothing(t *testing.T) {
	s := store(t)
	l := granted(t, s, sameOwner("block-1"), 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Verify(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrLost) {
		t.Errorf("verify: %v", err)
	}
	// A claim makes one attempt all the same: with no time to wait it is a try.
	if _, err := s.Claim(ctx, agent, other("owner-b")); !errors.Is(err, ErrHeld) {
		t.Errorf("claim: %v", err)
	}
}

func TestOneOfManyConcurrentClaimantsWins(t *testing.T) {
	s := store(t)
	for round := range 50 {
		var wins atomic.Int32
		var winner atomic.Pointer[Lease]
		var all sync.WaitGroup
		start := make(chan struct{})
		for i := range 8 {
			all.Go(func() {
				one := &Store{Dir: s.Dir, Table: s.Table}
				<-start
				l, err := one.Claim(t.Context(), agent, other(fmt.Sprintf("owner-%d", i)))
				switch {
				case err == nil:
					wins.Add(1)
					winner.Store(l)
				case !errors.Is(err, ErrHeld):
					t.Error(err)
				}
			})
		}
		close(start)
		all.Wait()
		if wins.Load() != 1 {
			t.Fatalf("%d winners", wins.Load())
		}
		if l := winner.Load(); l.Epoch() != uint64(round+1) {
			t.Fatalf("epoch %d in round %d", l.Epoch(), round)
		}
		mine(t, winner.Load())
		if err := winner.Load().Release(); err != nil {
			t.Fatal(err)
		}
	}
}
