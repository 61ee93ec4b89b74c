package tui

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/watch"
)

func TestLoadingTellsHowFarItIs(t *testing.T) {
	count := 0
	s := screenFor()
	s.Looked = func() int { return count }
	d := sit(t, s, 80, 24)
	if got := d.screenText(); !strings.Contains(got, "Looking…") || strings.Contains(got, "so far") {
		t.Errorf("before anything was looked at:\n%s", d.view())
	}
	for n, want := range map[int]string{1: "Looking… 1 entry so far", 3412: "Looking… 3,412 entries so far"} {
		count = n
		d.tellAt(tick{}, d.due())
		if got := d.screenText(); !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, d.view())
		}
		checkPicture(t, d.model)
	}
	if wait := d.due().Sub(d.clock); wait > time.Second {
		t.Errorf("the next number comes after %v", wait)
	}
	d.see(&watch.Snapshot{Seq: 1, Time: d.clock})
	if got := d.screenText(); strings.Contains(got, "so far") {
		t.Errorf("after the first snapshot:\n%s", d.view())
	}
	if wait := d.due().Sub(d.clock); wait < time.Second {
		t.Errorf("the count is asked for %v after the first snapshot", wait)
	}
}

func TestNumberOfAFirstLookThatTakesLongRises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var count atomic.Int64
		s := screenFor()
		s.Looked = func() int { return int(count.Load()) }
		r := rehearse(t, s)
		for _, n := range []int64{2000, 7000} {
			count.Store(n)
			time.Sleep(time.Second)
		}
		if !r.tape.has("2,000 entries so far") || !r.tape.has("7,000 entries so far") {
			t.Error("the numbers are not told")
		}
		before := r.tape.count()
		time.Sleep(time.Minute - 2*time.Second)
		if written := r.tape.count() - before; written > 400 {
			t.Errorf("%d bytes for a number that stands still", written)
		}
		r.press("q")
		if err := r.end(); err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestWatcherCountsForTheScreen(t *testing.T) {
	k := stockOf(t)
	k.putDead()
	if n := k.w.Looked(); n != 0 {
		t.Fatalf("%d before any look", n)
	}
	if _, err := k.w.Look(t.Context()); err != nil || k.w.Looked() != 1 {
		t.Errorf("%d counted of 1 lock, %v", k.w.Looked(), err)
	}
}
