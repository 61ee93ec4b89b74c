package tui

import (
	"strings"
	"testing"
)

func TestAThemeIsFoundByEverySpelling(t *testing.T) {
	for name, want := range map[string]string{
		"default": "default", "mono": "mono",
		"colour-blind": "colour-blind", "colourblind": "colour-blind", "color-blind": "colour-blind", "colorblind": "colour-blind",
	} {
		if got, ok := ThemeOf(name); !ok || got != want {
			t.Errorf("%q is %q, %v", name, got, ok)
		}
		if got, plain := newPaint(name, false, false), newPaint(want, false, false); got.styles != plain.styles {
			t.Errorf("%q is painted otherwise than %q", name, want)
		}
	}
	for _, name := range []string{"", "colour", "dark", "Mono"} {
		if _, ok := ThemeOf(name); ok {
			t.Errorf("%q is a theme", name)
		}
	}
	if newPaint(colourBlind, false, false).styles == newPaint("default", false, false).styles {
		t.Error("the theme for the colour-blind has the colours of the terminal")
	}
}

// Terminals set to an East-Asian width draw what Unicode calls ambiguous in two cells. But for lines, which they draw in
// one, what the screen draws is neutral.
func TestWhatTheScreenDrawsIsOneCellWide(t *testing.T) {
	const neutral, lines = "▪▴▸▾⣀⣤⣿", "─│"
	p := newPaint("", true, false)
	drawn := ""
	for g := ruleGlyph; g <= markGlyph; g++ {
		drawn += p.glyph(g)
	}
	for _, mark := range p.beatMarks() {
		drawn += mark
	}
	for _, r := range drawn {
		if !strings.ContainsRune(neutral+lines, r) {
			t.Errorf("%q is not known to be one cell wide", r)
		}
	}
}
