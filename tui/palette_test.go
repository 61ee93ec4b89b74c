package tui

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// says types a verb and enter.
func (d *desk) says(line string) []command {
	d.press(":")
	d.types(line)
	return d.press("enter")
}

func TestVerbsAreTheIntentsOfTheirKeys(t *testing.T) {
	for _, b := range opened(t, 140, 40).verbs() {
		byKey, byVerb := opened(t, 140, 40), opened(t, 140, 40)
		for _, d := range []*desk{byKey, byVerb} {
			d.choose("crashed")
			d.rescan, d.exports = nil, nil
		}
		pressed, said := byKey.press(b.Keys()[0]), byVerb.says(b.verb)
		if byVerb.palette != nil {
			t.Fatalf("%s: %v", b.verb, byVerb.palette.err)
		}
		if len(pressed) != len(said) || byKey.view() != byVerb.view() {
			t.Errorf("%s is not %s:\n%s\n%s", b.verb, b.Help().Key, byKey.screenText(), byVerb.screenText())
		}
	}
}

func TestEveryKeyButThoseOfTheCursorHasAVerb(t *testing.T) {
	without := []intent{intentFocus, intentPreviousTab, intentNextTab, intentBack, intentPalette, intentInterrupt}
	seen := map[string]bool{}
	for _, g := range keyMap() {
		for _, b := range g.bindings {
			moves := b.intent >= firstMove && b.intent <= lastMove
			if want := !moves && !slices.Contains(without, b.intent); (b.verb != "") != want {
				t.Errorf("%s has the verb %q", b.Help().Key, b.verb)
			}
			if b.verb != "" && seen[b.verb] {
				t.Errorf("%s is there twice", b.verb)
			}
			seen[b.verb] = true
			if len(b.verb) >= verbWidth {
				t.Errorf("%s is too long for its column", b.verb)
			}
		}
	}
}

func TestPaletteCompletes(t *testing.T) {
	d := opened(t, 80, 24)
	d.press(":")
	d.types("re")
	d.wants("▸ reverse")
	d.wants("release")
	d.wants("rescan")
	d.press("down", "tab")
	if got := d.palette.value(); got != "rescan" {
		t.Errorf("tab made %q", got)
	}
	d.press("ctrl+u")
	d.types("sor")
	d.press("tab")
	d.types("pi")
	d.press("tab", "enter")
	if d.sort != ColPID || d.palette != nil {
		t.Errorf("sorted by %v", d.sort)
	}
	d.press(":")
	d.types("eep") // within sweep
	d.press("enter")
	if d.dialog == nil || d.dialog.kind != dialogSweep {
		t.Error("what is chosen was not done")
	}
}

func TestPaletteSaysWhatIsWrongInPlace(t *testing.T) {
	for line, want := range map[string]string{
		"clam":             "no verb clam",
		"sort colour":      "no column colour",
		"filter state:odd": "no state",
		"quit now":         "quit takes nothing behind it",
		"claim nobody":     "no entry in the list is called nobody",
		"break lease":      "no entry in the list is called lease",
		"why writer.lease": "2 entries in the list are called writer.lease",
	} {
		d := opened(t, 140, 40)
		if did := d.says(line); len(did) != 0 || d.palette == nil {
			t.Errorf("%s did %+v", line, did)
		}
		d.wants(want)
		d.press("backspace")
		if d.palette.err != nil {
			t.Errorf("%s: the reason stays", line)
		}
		d.press("esc")
		if d.palette != nil || d.dialog != nil || d.filter.text != "" {
			t.Errorf("%s: esc left something", line)
		}
	}
}

func TestPaletteTakesTheNameOfAnEntry(t *testing.T) {
	d := opened(t, 140, 40)
	d.says("claim crashed")
	if d.dialog == nil || d.dialog.target.id != "crashed" || d.current().entry.ID != "crashed" {
		t.Fatalf("%+v", d.dialog)
	}
	d.press("esc")
	d.says("filter kind:lock docs")
	if d.filter.text != "kind:lock docs" || len(d.rows) != 2 {
		t.Errorf("%q, %d rows", d.filter.text, len(d.rows))
	}
	d.says("claim crashed")
	d.wants("no entry in the list is called crashed")
	d.press("esc")
	d.says("all")
	d.says("filter")
	if d.input == nil {
		t.Error("filter alone does not open its line")
	}
}

func TestNamedEntryIsNotTakenForWhatIsMarked(t *testing.T) {
	d := opened(t, 140, 40)
	d.press(" ", " ")
	if did := d.says("break crashed"); d.dialog != nil || len(did) != 0 {
		t.Errorf("a plan was opened: %+v", d.dialog)
	}
	d.wants("is for what is marked")
}

func TestPasteFillsThePaletteAndNeverRuns(t *testing.T) {
	d := opened(t, 80, 24)
	d.choose("crashed")
	d.press(":")
	d.tell(keyPress{text: "claim\rquit\r", pasted: true})
	if d.palette == nil || d.dialog != nil || quits(d.did) {
		t.Fatal("a paste ran")
	}
	d.press("esc")

	// A terminal that does not mark pastes: the characters come as a chunk, the end of the line as enter.
	d.tell(keyPress{text: ":claim"})
	if d.palette == nil || d.palette.value() != "claim" {
		t.Fatalf("%+v", d.palette)
	}
	d.press("enter")
	if d.dialog != nil {
		t.Fatal("enter right behind a chunk ran it")
	}
	d.wants("press enter again: it came with a paste")
	d.later(dialogDeaf)
	d.press("enter")
	if d.dialog == nil {
		t.Error("enter did not run what is on the line")
	}
}

func TestPaletteLeaves(t *testing.T) {
	for _, keys := range [][]string{{":", "esc"}, {":", "enter"}, {":", "backspace"}, {":", "x", "backspace", "backspace"}} {
		d := opened(t, 80, 24)
		d.press(keys...)
		if d.palette != nil || len(d.did) != 0 {
			t.Errorf("%v left it open", keys)
		}
	}
	d := opened(t, 80, 24)
	d.press(":", "q")
	if d.palette == nil || quits(d.did) {
		t.Error("q is a character here")
	}
	if !quits(d.press("ctrl+c")) {
		t.Error("^c does not quit")
	}
}

// keyTable is the README's table of keys.
func keyTable() string {
	var b strings.Builder
	b.WriteString("| | keys |\n|---|---|\n")
	for _, g := range keyMap() {
		title, _, _ := strings.Cut(g.title, ":")
		var cells []string
		for _, k := range g.bindings {
			says := k.verb
			if says == "" {
				says = k.Help().Desc
				if end := strings.IndexAny(says, ";:,("); end > 0 {
					says = says[:end]
				}
			}
			cells = append(cells, "`"+k.Help().Key+"` "+strings.TrimSpace(says))
		}
		b.WriteString("| " + title + " | " + strings.Join(cells, ", ") + " |\n")
	}
	return b.String()
}

func TestReadmeHasTheKeysOfTheKeyMap(t *testing.T) {
	const begin, end = "<!-- keys -->\n", "<!-- /keys -->\n"
	path := "../README.md"
	readme, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(readme), begin)
	table, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("the README has no table between %q and %q", begin, end)
	}
	if table == keyTable() {
		return
	}
	if *updateGolden {
		if err := os.WriteFile(path, []byte(before+begin+keyTable()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("the README's keys are not those of the key map, which are (-update writes them)\n%s", keyTable())
}
