package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"holdfast/tui/text"
)

// at is the cell where a text begins on the screen.
func (d *desk) at(s string) (x, y int) {
	d.t.Helper()
	for y, line := range strings.Split(ansi.Strip(d.view()), "\n") {
		if before, _, ok := strings.Cut(line, s); ok {
			return text.Width(before), y
		}
	}
	d.t.Fatalf("no %q on the screen:\n%s", s, d.view())
	return 0, 0
}

func (d *desk) clicks(s string) []command {
	d.t.Helper()
	x, y := d.at(s)
	return d.tell(pointing{x, y, clicked})
}

func (d *desk) wheels(s string, what pointed) {
	d.t.Helper()
	x, y := d.at(s)
	d.tell(pointing{x, y, what})
}

var sizes = []struct{ w, h int }{{140, 40}, {80, 24}, {50, 12}}

func TestClickSelectsTheRowThatIsSeenThere(t *testing.T) {
	for _, size := range sizes {
		d := opened(t, size.w, size.h)
		d.tell(pointing{5, d.layout().list.y + 2, wheeledDown})
		for at := d.top; at < d.top+d.layout().list.h-1 && at < len(d.rows); at++ {
			y := d.layout().list.y + 1 + at - d.top
			d.tell(pointing{size.w / 4, y, clicked})
			if d.cursor != at || d.selected != d.rows[at].ref() {
				t.Errorf("%dx%d: a click on line %d chose row %d, not %d", size.w, size.h, y, d.cursor, at)
			}
		}
	}
}

func TestClickOnAColumnSortsByIt(t *testing.T) {
	for _, size := range sizes {
		d := opened(t, size.w, size.h)
		count, _ := d.columnsIn(d.layout().list.w)
		for c := range count {
			if c == ColState {
				continue // it is the one already
			}
			d.clicks(c.String())
			if d.sort != c || d.reversed {
				t.Errorf("%dx%d: %v sorts by %v", size.w, size.h, c, d.sort)
			}
			d.clicks(c.String())
			if d.sort != c || !d.reversed {
				t.Errorf("%v does not turn round", c)
			}
		}
	}
}

func TestClickOnTheDetailFocusesItAndOpensItsTabs(t *testing.T) {
	d := opened(t, 140, 40)
	for _, want := range []tab{tabRaw, tabProcess, tabOverview} {
		d.clicks(want.String())
		if d.tab != want {
			t.Errorf("a click on %v opens %v", want, d.tab)
		}
	}
	l := d.layout()
	d.tell(pointing{l.detail.x + 3, l.detail.y + 3, clicked})
	if !d.focused {
		t.Error("the detail is not focused")
	}
	d.tell(pointing{3, l.list.y + 3, clicked})
	if d.focused {
		t.Error("the list does not get the keys back")
	}
}

func TestWheelScrollsWhatIsUnderIt(t *testing.T) {
	d := opened(t, 80, 24)
	l := d.layout()
	for range 20 {
		d.tell(pointing{3, l.list.y + 2, wheeledDown})
	}
	if d.top != len(d.rows)-(l.list.h-1) || d.cursor < d.top {
		t.Errorf("the list shows from %d, the cursor is on %d", d.top, d.cursor)
	}
	for range 20 {
		d.tell(pointing{3, l.list.y + 2, wheeledUp})
	}
	if d.top != 0 || d.cursor > l.list.h-2 {
		t.Errorf("the list shows from %d, the cursor is on %d", d.top, d.cursor)
	}
	was := d.selected
	d.press("enter")
	d.tell(pointing{3, 10, wheeledDown})
	if d.selected != was || d.scroll == 0 {
		t.Errorf("the detail is scrolled by %d", d.scroll)
	}
	d.press("esc", "?")
	d.tell(pointing{3, 10, wheeledDown})
	if d.helpTop != wheelStep {
		t.Errorf("the help is scrolled by %d", d.helpTop)
	}
}

func TestMouseOnlyLeavesADialog(t *testing.T) {
	for _, key := range []string{"C", "B"} {
		d := opened(t, 80, 24)
		d.choose("crashed")
		d.plans(key)
		body := d.layout().body
		box := len(d.dialogBox(body))
		button, buttonY := d.at(cancelButton)
		for y := body.y + body.h - box; y < d.h; y++ {
			for x := range d.w {
				if y >= body.y+body.h && x > 0 {
					break // once is enough beside it
				}
				if y == buttonY && x >= button && x < button+len(cancelButton) {
					continue
				}
				if got := d.tell(pointing{x, y, clicked}); len(got) != 0 {
					t.Fatalf("a click at %d,%d gave %+v", x, y, got)
				}
				if y < body.y+body.h && d.dialog == nil {
					t.Fatalf("a click at %d,%d left the dialog", x, y)
				}
				if d.dialog == nil { // the footer is beside it
					d.plans(key)
				}
			}
		}
		d.clicks(cancelButton)
		if d.dialog != nil {
			t.Error("Cancel does not leave it")
		}
		d.plans(key)
		d.tell(pointing{3, body.y, clicked})
		if d.dialog != nil || len(d.did) != 0 {
			t.Errorf("a click beside it: %+v", d.did)
		}
	}
}

func TestSecondHalfOfADoubleClickLeavesNoDialog(t *testing.T) {
	d := opened(t, 80, 24)
	d.choose("crashed")
	d.press("B")
	d.tell(pointing{3, 3, clicked})
	if d.dialog == nil {
		t.Error("it left a dialog that could not be read yet")
	}
}

func TestWheelScrollsAPlan(t *testing.T) {
	d := opened(t, 50, 12)
	d.choose("reviewer")
	d.plans("C")
	first := d.screenText()
	d.wheels("Cancel", wheeledDown)
	if d.dialog.top != wheelStep || d.screenText() == first {
		t.Errorf("it is scrolled by %d", d.dialog.top)
	}
	for range 50 {
		d.wheels("Cancel", wheeledDown)
	}
	d.wheels("Cancel", wheeledUp)
	if plan, _ := d.dialogLines(50); d.dialog.top > len(plan) {
		t.Errorf("it is scrolled by %d of %d", d.dialog.top, len(plan))
	}
}

func TestMouseIsTurnedOffForSelectingText(t *testing.T) {
	d := opened(t, 80, 24)
	if got := d.press("m"); len(got) != 1 || got[0].mouse != mouseOff {
		t.Errorf("m gave %+v", got)
	}
	d.wants("m gives it back to this screen")
	d.tell(pointing{3, 8, clicked}) // one that was under way
	if d.cursor != 0 {
		t.Error("the mouse still acts")
	}
	d.tell(resumed{})
	if len(d.did) != 1 {
		t.Error("going on after a suspension turned it on")
	}
	if got := d.press("m"); len(got) != 1 || got[0].mouse != mouseOn {
		t.Errorf("m gave %+v", got)
	}
	if got := d.tell(resumed{}); len(got) != 1 || got[0].mouse != mouseOn {
		t.Errorf("going on after a suspension gave %+v", got)
	}
}

func TestMouseDoesNothingWhileTooSmall(t *testing.T) {
	d := opened(t, 40, 9)
	for y := range 9 {
		d.tell(pointing{2, y, clicked})
		d.tell(pointing{2, y, wheeledDown})
	}
	if d.cursor != 0 || d.top != 0 || len(d.did) != 0 {
		t.Error("something was done")
	}
}

func TestClickOnANoteOnlyClearsIt(t *testing.T) {
	d := opened(t, 50, 12)
	d.choose("researcher")
	d.press("R")
	_, y := d.at("belongs")
	before := d.cursor
	d.tell(pointing{3, y, clicked})
	if d.note.text != "" || d.cursor != before {
		t.Errorf("note %q, cursor %d", d.note.text, d.cursor)
	}
}

// The keys that the footer names can be clicked, each where it is drawn and nowhere else.
func TestClickOnTheFooterPressesItsKey(t *testing.T) {
	for _, size := range sizes {
		for _, prepare := range []func(*desk){
			func(*desk) {}, func(d *desk) { d.choose("reviewer") }, func(d *desk) { d.press("enter") }, func(d *desk) { d.press("a") },
			func(d *desk) { d.press("?") }, func(d *desk) { d.press("4") },
		} {
			d := opened(t, size.w, size.h)
			prepare(d)
			hints := d.footerHints()
			if len(hints) < 2 {
				t.Fatalf("%+v", hints)
			}
			for x := range size.w {
				byKey, byClick := opened(t, size.w, size.h), opened(t, size.w, size.h)
				prepare(byKey)
				prepare(byClick)
				key, words := "", ansi.Strip(byClick.footerLine())
				for _, h := range hints {
					if x >= h.x && x < h.x+text.Width(h.words()) {
						key = h.press
						if !strings.HasPrefix(words[len(text.Head(words, h.x)):], h.words()) {
							t.Errorf("%q is not at %d of %q", h.words(), h.x, words)
						}
					}
				}
				var pressed []command
				if key != "" {
					pressed = byKey.press(key)
				}
				clicks := byClick.tell(pointing{x, size.h - 1, clicked})
				if len(clicks) != len(pressed) || byClick.view() != byKey.view() {
					t.Fatalf("%dx%d: a click at %d is not %q:\n%s", size.w, size.h, x, key, byClick.view())
				}
				if d := byClick.dialog; d != nil {
					byClick.tell(pointing{x, size.h - 1, clicked}) // the second half of a double click
					if len(byClick.did) != len(clicks) || byClick.dialog != d {
						t.Error("a double click did more than open a plan")
					}
				}
			}
		}
	}
}

func TestClickOnALineThatIsTypedPressesNoKey(t *testing.T) {
	for _, key := range []string{"/", ":"} {
		d := opened(t, 80, 24)
		d.press(key)
		for x := range d.w {
			if got := d.tell(pointing{x, d.h - 1, clicked}); len(got) != 0 || d.dialog != nil || d.help {
				t.Fatalf("a click at %d of the line gave %+v", x, got)
			}
			if key == "/" && d.input == nil {
				d.press(key)
			}
		}
	}
}

// Reports that arrive in pieces of any size, at any pace that a slow line has, are no keys.
func TestTornReportsOfTheMouseAreNoKeys(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var pieces []string
		for range rapid.IntRange(1, 12).Draw(rt, "reports") {
			x, y := rapid.IntRange(0, 139).Draw(rt, "x"), rapid.IntRange(0, 39).Draw(rt, "y")
			report := fmt.Sprintf("\x1b[<%d;%d;%d%s", rapid.SampledFrom([]int{0, 2, 32, 64, 65}).Draw(rt, "button"), x+1, y+1,
				rapid.SampledFrom([]string{"M", "m"}).Draw(rt, "end"))
			if rapid.IntRange(0, 4).Draw(rt, "old") == 0 {
				report = fmt.Sprintf("\x1b[M%c%c%c", 32+64+rapid.IntRange(0, 1).Draw(rt, "wheel"), 33+min(x, 90), 33+y)
			}
			for report != "" {
				n := rapid.IntRange(1, len(report)).Draw(rt, "piece")
				pieces = append(pieces, report[:n])
				report = report[n:]
			}
		}
		pace := time.Duration(rapid.IntRange(0, int(escFor/time.Millisecond)-1).Draw(rt, "pace")) * time.Millisecond
		synctest.Test(t, func(t *testing.T) {
			s := screenFor()
			var keys []string
			s.tests.onKey = func(_ *harness, key string) { keys = append(keys, key) }
			r := rehearse(t, s)
			for _, piece := range pieces {
				_, _ = io.WriteString(r.keys, piece)
				time.Sleep(pace)
			}
			time.Sleep(time.Second)
			r.press("q")
			r.stop() // a click may have opened what q only closes
			if err := r.end(); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
			if len(keys) != 1 || keys[0] != "q" {
				t.Errorf("pace %v %q were keys: %q", pace, pieces, keys)
			}
		})
		if t.Failed() {
			rt.Fatal("keys")
		}
	})
}

func TestEscIsStillAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := screenFor()
		var keys []string
		s.tests.onKey = func(_ *harness, key string) { keys = append(keys, key) }
		r := rehearse(t, s)
		r.press("\x1b", "\x1b[", "j")
		_, _ = io.WriteString(r.keys, "\x1b")
		_, _ = io.WriteString(r.keys, "j")
		_, _ = io.WriteString(r.keys, "\x1b")
		_, _ = io.WriteString(r.keys, "\x1b")
		time.Sleep(time.Second)
		r.press("m", "m")
		if !r.tape.has("\x1b[?1002h") || !r.tape.has("\x1b[?1002l") {
			t.Error("the mouse is not turned on and off")
		}
		r.press("q")
		if err := r.end(); err != nil {
			t.Errorf("ended with %v", err)
		}
		if got := strings.Join(keys, " "); got != "esc j esc j esc esc m m q" {
			t.Errorf("the keys were %s", got)
		}
	})
}
