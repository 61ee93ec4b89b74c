package tui

import (
	"strings"
	"testing"
	"time"

	"holdfast/fslock/verdict"
	"holdfast/watch"
)

// recorded is the history of "researcher", who beats but for some times, and took over from a crashed one.
func recorded(kind watch.Kind, path string) watch.History {
	if kind != watch.Lease || !strings.HasSuffix(path, "/researcher.lease.json") {
		return watch.History{}
	}
	var h watch.History
	at := noon.Add(-5 * time.Minute)
	for i := range 40 {
		gap := 5 * time.Second
		switch i {
		case 7:
			gap = 9 * time.Second
		case 12:
			gap = 40 * time.Second
		case 30:
			gap = 16 * time.Second
		}
		at = at.Add(gap)
		h.Beats = append(h.Beats, at)
	}
	first := verdict.Holder{PID: 9000, Host: "vm", Channel: "stable", Version: "0.56", Epoch: 5, Acquired: noon.Add(-26 * time.Hour)}
	second := verdict.Holder{PID: 48213, Host: "vm", Channel: "stable", Version: "0.57", Epoch: 6, Acquired: h.Beats[12]}
	h.Holders = []watch.HolderAt{{Time: noon.Add(-26 * time.Hour), Holder: first, PID: int(first.PID)}, {Time: h.Beats[12], Holder: second, PID: int(second.PID)}}
	h.Epochs = []watch.EpochAt{{Time: noon.Add(-26 * time.Hour), Epoch: 5}, {Time: h.Beats[12], Epoch: 6}}
	h.States = []watch.StateAt{
		{Time: noon.Add(-26 * time.Hour), State: verdict.Live},
		{Time: h.Beats[11].Add(time.Second), State: verdict.Dead, Cause: "gone"},
		{Time: h.Beats[12], State: verdict.Live},
	}
	return h
}

func TestPicturesOfHistory(t *testing.T) {
	t.Run("list", func(t *testing.T) {
		eachPicture(t, "history", func(_ *testing.T, d *desk) {
			d.choose("researcher")
			d.press("]", "]")
			if d.layout().class == compact {
				d.press("enter")
			}
		})
	})
	t.Run("whole", func(t *testing.T) {
		eachPicture(t, "history-whole", func(_ *testing.T, d *desk) {
			d.choose("researcher")
			d.press("[", "[", "enter")
		})
	})
}

func TestHistoryTellsBeatsHoldersAndStates(t *testing.T) {
	s := screenFor()
	s.NoColor, s.ASCII, s.History = true, true, recorded
	d := sit(t, s, 100, 30)
	d.see(everything(noon))
	d.choose("researcher")
	d.press("]", "]", "enter")
	d.wants("beats ......+....|.................#.........# . 36 on time + 1 late # 2 over 15s | 1 new holder; none since 14:01:39, for 50s")
	d.wants("states 13:59:13 + LIVE")
	d.wants("x DEAD gone")
	d.wants("2026-03-13 12:02:29 pid 9000 on vm, stable 0.56")
	d.wants("epoch 6")
	d.wants("Watched since 14:02:29, 0s ago.")
}

func TestHistoryOfWhatWasNotSeen(t *testing.T) {
	s := screenFor()
	d := sit(t, s, 100, 30)
	d.see(everything(noon))
	d.choose("researcher")
	d.press("]", "]", "enter")
	d.later(90 * time.Second)
	d.wants("Nothing is recorded yet. Watched since 14:02:29, 1m 30s ago.")
}

func TestHistoryFollowsTheCursorAndTheSnapshots(t *testing.T) {
	asked := map[string]int{}
	beats := 1
	s := screenFor()
	s.NoColor = true
	s.History = func(_ watch.Kind, path string) watch.History {
		asked[path]++
		h := watch.History{}
		for i := range beats {
			h.Beats = append(h.Beats, noon.Add(time.Duration(i)*time.Second))
		}
		return h
	}
	d := sit(t, s, 120, 30)
	d.see(everything(noon))
	d.choose("researcher")
	if len(asked) != 0 {
		t.Errorf("asked for %v with the tab closed", asked)
	}
	d.press("]", "]", "p", "p")
	d.later(time.Second)
	if asked[leases+"/researcher.lease.json"] != 1 {
		t.Errorf("asked %v", asked)
	}
	beats = 4
	snap := everything(noon.Add(time.Second))
	snap.Seq = 9
	d.see(snap)
	if len(d.past.Beats) != 4 {
		t.Errorf("%d beats after a new snapshot", len(d.past.Beats))
	}
	d.press("p")
	d.choose("planner")
	d.later(time.Minute)
	if d.past.of != d.selected || len(d.past.Beats) != 2 {
		t.Errorf("the paused picture has %d beats of %v: two had come when the pause began", len(d.past.Beats), d.past.of)
	}
	d.press("[")
	if d.past.of != (ref{}) {
		t.Error("the history is kept with its tab closed")
	}
}
