package tui

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/lease"
	"holdfast/watch"
)

func TestActionsSayTheReasonThatTheirKeySays(t *testing.T) {
	const lock = storage + "/index/11c0ffee11c0ffee/cache.lock"
	for _, entry := range []string{"crashed", "researcher", "relay", "torn", "uncounted", lock, storage + "/inspect/8eb3d10c88aa02f1/writer.lease"} {
		for name, change := range map[string]func(*desk){
			"":           func(*desk) {},
			" read-only": func(d *desk) { d.readOnly, d.holds.readOnly = true, true },
			" paused":    func(d *desk) { d.press("p") },
			" held":      func(d *desk) { d.holding("researcher", lock) },
		} {
			t.Run(filepath.Base(entry)+name, func(t *testing.T) {
				for _, what := range actionIntents() {
					d := opened(t, 200, 60)
					change(d)
					d.choose(entry)
					d.press("a")
					why := oneSpaced(d.paint.Safe(d.whyNot(what, d.current())))
					b, ok := d.bindingOf(what)
					if !ok {
						t.Fatalf("no key for %v", what)
					}
					switch {
					case why == "":
						d.wants(b.verb + " " + b.Help().Desc)
					case acting(what) != "" && d.inert() != "":
						d.wants(b.verb + " no: " + d.inertWord())
					default:
						d.wants("no: " + why[:min(len(why), 90)])
					}
					did := d.press(b.Keys()[0])
					done := d.dialog != nil || len(did) > 0
					if done == (why != "") {
						t.Errorf("%s: listed with %q, and its key did %+v", b.verb, why, did)
					}
					if why != "" && !strings.Contains(oneSpaced(d.note.text), why) {
						t.Errorf("%s: listed with %q, and its key says %q", b.verb, why, d.note.text)
					}
				}
			})
		}
	}
}

// What is true of all that change something is said once above the list, whichever of it is chosen and however far it
// is scrolled.
func TestTheListOfActionsSaysOnceThatNothingCanBeChanged(t *testing.T) {
	for name, c := range map[string]struct {
		w, h   int
		says   string
		change func(*desk)
	}{
		"read-only":        {80, 24, "This screen is read-only (RO): it changes nothing.", func(d *desk) { d.readOnly, d.holds.readOnly = true, true }},
		"read-only, small": {50, 12, "This screen is read-only (RO): it changes nothing.", func(d *desk) { d.readOnly, d.holds.readOnly = true, true }},
		"paused":           {80, 24, "The picture is paused and may be old. p goes on.", func(d *desk) { d.press("p") }},
		"stale":            {80, 24, "The picture is stale: it waits for a fresh look.", func(d *desk) { d.tell(delivery{ended: true}) }},
	} {
		t.Run(name, func(t *testing.T) {
			d := opened(t, c.w, c.h)
			c.change(d)
			d.choose("crashed")
			d.press("a")
			for range actionIntents() {
				if n := strings.Count(d.screenText(), c.says); n != 1 {
					t.Fatalf("said %d times:\n%s", n, d.view())
				}
				checkPicture(t, d.model)
				d.press("j")
			}
			if c.h < 24 {
				return
			}
			marker := "no: " + strings.Split(name, ",")[0]
			if n := strings.Count(d.screenText(), marker); n != 5 {
				t.Errorf("%d keys are marked %q:\n%s", n, marker, d.view())
			}
			d.press("esc", ":")
			d.types("break")
			d.wants("no: " + name)
			if strings.Contains(d.screenText(), c.says) {
				t.Error("the palette says the sentence with each verb")
			}
		})
	}
}

func TestActionsAreChosenWithTheCursor(t *testing.T) {
	d := opened(t, 120, 30)
	d.choose("crashed")
	at := d.cursor
	d.press("a", "j", "j", "j")
	if d.cursor != at || d.actions == nil || d.actions.at != 3 {
		t.Fatalf("cursor %d, %+v", d.cursor, d.actions)
	}
	d.press("enter")
	if d.actions != nil || d.dialog == nil || d.dialog.kind != dialogBreak {
		t.Errorf("enter opened %+v", d.dialog)
	}
	d.press("esc", "a", "x", "s", "/", "esc")
	if d.actions != nil || d.sort != 0 || d.input != nil {
		t.Error("another key than those of the list did something")
	}
	d.press("a")
	d.tell(keyPress{text: "B", pasted: true})
	d.tell(keyPress{text: "BB"})
	if d.dialog != nil {
		t.Error("a paste acted")
	}
}

func TestActionsCloseWhenTheirEntryGoes(t *testing.T) {
	d := opened(t, 120, 30)
	d.choose("crashed")
	d.press("a")
	s := everything(noon.Add(time.Second))
	for i := range s.Entries {
		if s.Entries[i].ID == "crashed" {
			s.Entries = append(s.Entries[:i:i], s.Entries[i+1:]...)
			break
		}
	}
	s.Seq = 2
	d.see(s)
	if d.actions != nil {
		t.Error("the list is open for another entry")
	}
	d.wants("not in the list any more")
}

func TestVerifyLooksAtTheDisk(t *testing.T) {
	s, w, store := registryOf(t)
	d := sit(t, s, 140, 40)
	d.see(look(t, w))
	d.choose("agent")
	commands := d.press("v")
	if len(commands) != 1 || commands[0].acts {
		t.Fatalf("%+v", commands)
	}
	d.finish(commands)
	d.wants("agent is FREE.")
	d.wants("Verified at")

	rescans := 0
	d.rescan = func(context.Context) error { rescans++; return nil }
	held, err := store.Claim(t.Context(), "agent", lease.Claimant{Owner: "o", Block: "b"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Release() })
	commands = d.press("v")
	for _, c := range commands {
		d.finish(d.tell(c.run(t.Context())))
	}
	d.wants("Changed: agent is LIVE now.")
	if rescans != 1 {
		t.Errorf("the picture was asked for %d times", rescans)
	}
	d.wants("Changed: agent is LIVE now.") // the end of that look does not talk over it
}

func TestVerifyEveryKind(t *testing.T) {
	k := stockOf(t)
	k.putDead()
	k.put(filepath.Join(k.dir, ".far.lock.reclaim"), 77, "web02", "far-token", 0)
	s := screenFor()
	s.Locker = k.w.Locker()
	d := sit(t, s, 140, 40)
	d.see(look(t, k.w))
	d.press("4")
	seen := map[watch.Kind]bool{}
	for range 2 {
		for i, r := range d.rows {
			d.goTo(i)
			seen[r.entry.Kind] = true
			d.finish(d.press("v"))
			d.wants("Verified at")
		}
		d.press("1")
	}
	if !seen[watch.Lock] || !seen[watch.Token] {
		t.Errorf("only %v were there", seen)
	}
}

func TestVerifyTellsWhatFailed(t *testing.T) {
	d := opened(t, 140, 40)
	d.choose("crashed")
	d.press("v")
	d.tell(looked{plan: target{name: "crashed"}, err: errMadeUp})
	d.wants("Not verified: crashed: made up")
	d.holds.store = nil
	d.refuses("v", "not known as one of leases")
	d.holds.locker = nil
	d.choose(storage + "/index/11c0ffee11c0ffee/cache.lock")
	d.refuses("v", "nothing to look with")
}

func TestRescan(t *testing.T) {
	d := opened(t, 140, 40)
	d.refuses("ctrl+r", "Nothing looks again")
	answer := error(nil)
	d.rescan = func(context.Context) error { return answer }
	asked := d.press("ctrl+r")
	if len(asked) != 1 || asked[0].acts {
		t.Fatalf("%+v", asked)
	}
	if again := d.press("ctrl+r"); len(again) != 0 {
		t.Error("asked twice at once")
	}
	d.wants("being looked at already")
	d.finish(asked)
	d.wants("Looked again at everything in")
	answer = errors.New("no time")
	d.finish(d.press("ctrl+r"))
	d.wants("Not looked at again: no time")
	answer = nil
	d.press("p")
	d.finish(d.press("ctrl+r"))
	d.wants("the picture stays paused")
	d.tell(delivery{ended: true})
	d.refuses("ctrl+r", "the watcher has stopped")
}
