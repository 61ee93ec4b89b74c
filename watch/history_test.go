package watch

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// pastBubble is a bubble with its watcher and one lease that a test renews.
func pastBubble(t *testing.T, test func(t *testing.T, b *bubble, w *Watcher, write func(change func(*record.Lease)))) {
	t.Helper()
	var watcher *Watcher
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		l := newLease(b.who, "a", time.Now())
		test(t, b, watcher, func(change func(*record.Lease)) {
			l.RenewedAtMS = time.Now().UnixMilli()
			change(&l)
			putLease(t, b.leases, l)
			b.source.wrote(b.lease("a"))
		})
	}, func(w *Watcher, _ *bubble) { watcher = w })
}

func TestAnEntrysPastIsRememberedInOrderAndBounded(t *testing.T) {
	pastBubble(t, func(t *testing.T, b *bubble, w *Watcher, write func(func(*record.Lease))) {
		t.Helper()
		const times = 100
		first := time.Now()
		for i := range times {
			write(func(l *record.Lease) { l.ClaimID, l.Epoch = fmt.Sprint("claim-", i/2), uint64(10+i/2) })
			b.after(time.Second)
		}
		h := w.History(Lease, b.lease("a"))
		if len(h.Beats) != maxBeats || len(h.Holders) != maxSeen || len(h.Epochs) != maxSeen || len(h.States) != 1 {
			t.Fatalf("%d beats, %d holders, %d epochs, %d states", len(h.Beats), len(h.Holders), len(h.Epochs), len(h.States))
		}
		for i, beat := range h.Beats {
			want := first.Add(time.Duration(times-maxBeats+i) * time.Second)
			if !near(beat, want) {
				t.Errorf("beat %d is at %v, want %v", i, beat, want)
			}
		}
		for i := range maxSeen {
			n := times/2 - maxSeen + i
			if h.Holders[i].Holder.ClaimID != fmt.Sprint("claim-", n) || h.Epochs[i].Epoch != uint64(10+n) {
				t.Errorf("place %d has %+v and %+v", i, h.Holders[i], h.Epochs[i])
			}
			at := first.Add(time.Duration(2*n) * time.Second)
			if d := h.Holders[i].Time.Sub(at); d < 0 || d > 2*latency {
				t.Errorf("holder %d is first seen %v after it came", n, d)
			}
		}
		if s := h.States[0]; s.State != verdict.Live || s.Time.Sub(first) > 2*latency {
			t.Errorf("got %+v", s)
		}
	})
}

func TestStatesThatTimeAloneChangesAreRemembered(t *testing.T) {
	pastBubble(t, func(t *testing.T, b *bubble, w *Watcher, write func(func(*record.Lease))) {
		t.Helper()
		first := time.Now()
		write(func(*record.Lease) {})
		b.after(verdict.LeaseTTL + time.Second)
		b.world.Kill(100)
		b.after(20 * time.Second)
		var got []verdict.State
		for _, s := range w.History(Lease, b.lease("a")).States {
			got = append(got, s.State)
		}
		want := []verdict.State{verdict.Live, verdict.Late, verdict.Expired, verdict.Dead}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		states := w.History(Lease, b.lease("a")).States
		if d := states[2].Time.Sub(first.Add(verdict.LeaseTTL)); d < 0 || d > 2*latency {
			t.Errorf("expired %v after the TTL", d)
		}
		if states[3].Cause != string(proc.Gone) {
			t.Errorf("dead of %q", states[3].Cause)
		}
		if h := w.History(Lease, b.lease("a")); len(h.Beats) != 1 || len(h.Holders) != 1 {
			t.Errorf("nobody else came and nothing was renewed: %+v", h)
		}
	})
}

func TestTheSameHolderThatComesBackIsThereAgain(t *testing.T) {
	pastBubble(t, func(t *testing.T, b *bubble, w *Watcher, write func(func(*record.Lease))) {
		t.Helper()
		write(func(*record.Lease) {})
		b.after(time.Second)
		remove(t, b.lease("a"))
		b.source.wrote(b.lease("a"))
		b.after(time.Second)
		write(func(*record.Lease) {})
		b.after(time.Second)
		h := w.History(Lease, b.lease("a"))
		if len(h.Holders) != 2 || h.Holders[0].Holder.ClaimID != h.Holders[1].Holder.ClaimID {
			t.Errorf("got %+v", h.Holders)
		}
		if n := len(h.States); n != 3 || h.States[1].State != verdict.Free {
			t.Errorf("got %+v", h.States)
		}
		// What is returned is the caller's.
		h.States[0].Cause = "spoilt"
		if w.History(Lease, b.lease("a")).States[0].Cause != "" {
			t.Error("a caller can change what is remembered")
		}
	})
}

func TestWhatIsGoneIsRememberedForAMinute(t *testing.T) {
	var w *Watcher
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		lock := filepath.Join(b.root, "index", "k", "cache.lock")
		put := func() {
			putLock(t, lock, newLock(b.who, time.Now()))
			b.source.wrote(lock)
		}
		takeAway := func() {
			remove(t, lock)
			b.source.wrote(lock)
		}
		past := func() int { return len(w.History(Lock, lock).Beats) }
		put()
		b.after(time.Second)
		takeAway()
		b.after(50 * time.Second)
		if n := past(); n != 1 {
			t.Errorf("%d beats, gone for less than a minute", n)
		}
		put()
		b.after(time.Second)
		if n := past(); n != 2 {
			t.Errorf("%d beats after it came back", n)
		}
		takeAway()
		b.after(62 * time.Second)
		if n := past(); n != 0 {
			t.Errorf("%d beats, gone for more than a minute", n)
		}
		put()
		b.after(time.Second)
		if n := past(); n != 1 {
			t.Errorf("%d beats of what was forgotten", n)
		}
		takeAway()
		b.after(62 * time.Second)
		other := filepath.Join(b.root, "index", "k", "writer.lease")
		putLock(t, other, newLock(b.who, time.Now()))
		b.source.wrote(other)
		b.after(time.Second)
		if len(w.past.all) != 1 || len(w.past.gone) != 0 {
			t.Errorf("%d are kept, %d gone", len(w.past.all), len(w.past.gone))
		}
		if h := w.History(Lease, lock); len(h.States) != 0 {
			t.Errorf("of another kind: %+v", h)
		}
	}, func(watcher *Watcher, b *bubble) {
		w = watcher
		put(t, filepath.Join(b.root, "index", "k", "data"), nil)
	})
}

func TestTheGoneAreForgottenWhenTheyAreTooMany(t *testing.T) {
	var p past
	at := time.Now()
	for i := range 2 * maxGone {
		at = at.Add(time.Millisecond)
		path := fmt.Sprintf("/r/%d.lock", i)
		p.note(&Snapshot{Time: at, Entries: []*Entry{
			{Kind: Lock, Path: path, Verdict: verdict.Verdict{State: verdict.Free}}, {Kind: Temp, Path: "/r/.t"},
		}})
	}
	if len(p.all) != maxGone+1 || len(p.gone) != maxGone {
		t.Errorf("%d are kept, %d of them gone", len(p.all), len(p.gone))
	}
	if len(p.of(key{Lock, "/r/5.lock"}, at).States) != 0 || len(p.of(key{Lock, fmt.Sprintf("/r/%d.lock", 2*maxGone-2)}, at).States) != 1 {
		t.Error("not the oldest were forgotten")
	}
}

func TestTheHistoryCanBeReadWhileRunGoesOn(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "a.lock")
	self := proc.Local().Self()
	w := &Watcher{Roots: []Root{{Path: root}}}
	r := start(t, w)
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				h := w.History(Lock, path)
				for i := range h.Holders {
					h.Holders[i].Holder.WriterEpoch = "read"
				}
				slices.Reverse(h.Beats)
				time.Sleep(time.Millisecond)
			}
		}
	})
	for i := range 10 {
		l := newLock(self, time.Now())
		l.WriterEpoch = fmt.Sprint(i)
		putLock(t, path, l)
		r.until(func(s *Snapshot) bool {
			e := find(s, path)
			return e != nil && e.Holder() != nil && e.Holder().WriterEpoch == l.WriterEpoch
		})
	}
	close(stop)
	reader.Wait()
	r.stop()
	holders := w.History(Lock, path).Holders
	if len(holders) != 10 || holders[9].Holder.WriterEpoch != "9" {
		t.Errorf("got %+v", holders)
	}
}
