package text_test

import (
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"holdfast/fslock/verdict"
	"holdfast/tui/text"
)

func TestSymbols(t *testing.T) {
	for state, want := range map[verdict.State][3]string{
		verdict.Live:       {"LIVE", "✓", "+"},
		verdict.Late:       {"LATE", "↻", "~"},
		verdict.Stopped:    {"STOPPED", "⊜", "="},
		verdict.Remote:     {"REMOTE", "@", "@"},
		verdict.Unknown:    {"UNKNOWN", "?", "?"},
		verdict.Expired:    {"EXPIRED", "!", "!"},
		verdict.Dead:       {"DEAD", "✗", "x"},
		verdict.Unreadable: {"UNREADABLE", "⊘", "#"},
		verdict.Free:       {"FREE", "-", "-"},
		verdict.InUse:      {"IN-USE", "⊡", "u"},
		verdict.Litter + 1: {"UNKNOWN", "?", "?"},
		verdict.State(255): {"UNKNOWN", "?", "?"},
	} {
		got := [3]string{text.Word(state), text.Style{}.Symbol(state), text.Style{ASCII: true}.Symbol(state)}
		if got != want {
			t.Errorf("state %d: got %q, want %q", state, got, want)
		}
	}
}

func TestSymbolsAreOneCellAndDistinct(t *testing.T) {
	for _, style := range []text.Style{{}, {ASCII: true}} {
		seen := map[string]verdict.State{}
		for state := verdict.Unknown; state <= verdict.Litter; state++ {
			symbol := style.Symbol(state)
			if text.Width(symbol) != 1 || ansi.StringWidthWc(symbol) != 1 {
				t.Errorf("%+v: the symbol %q of %v is not one cell wide", style, symbol, state)
			}
			if want := symbol + " " + text.Word(state); style.State(state) != want || ansi.Strip(text.Colour(state, want)) != want {
				t.Errorf("%+v: %v is written %q", style, state, style.State(state))
			}
			if style.Safe(symbol) != symbol {
				t.Errorf("%+v: the symbol %q of %v cannot be printed", style, symbol, state)
			}
			if other, taken := seen[symbol]; taken {
				t.Errorf("%+v: %v and %v share the symbol %q", style, other, state, symbol)
			}
			seen[symbol] = state
		}
	}
}

func TestMarks(t *testing.T) {
	all := verdict.Mine | verdict.IsBlocked | verdict.Clock | verdict.LongHeld | verdict.Legacy |
		verdict.EpochFlag | verdict.StoppedFlag
	for _, c := range []struct {
		style text.Style
		flags verdict.Flag
		held  time.Duration
		want  string
	}{
		{text.Style{}, 0, time.Hour, ""},
		{text.Style{}, verdict.Mine, 0, "*"},
		{text.Style{}, verdict.IsBlocked | verdict.Mine, 0, "* ⊞"},
		{text.Style{}, verdict.LongHeld, 0, "held"},
		{text.Style{}, all, 2*time.Hour + time.Minute, "* ⊞ clock held 2h legacy epoch stopped"},
		{text.Style{ASCII: true}, all, 11 * time.Minute, "* blocked clock held 11m legacy epoch stopped"},
	} {
		if got := c.style.Marks(c.flags, c.held); got != c.want {
			t.Errorf("%+v: Marks(%v, %v) = %q, want %q", c.style, c.flags.Strings(), c.held, got, c.want)
		}
	}
}

func TestClears(t *testing.T) {
	now := time.Date(2026, 3, 14, 14, 2, 29, 0, time.Local)
	soon := now.Add(12500 * time.Millisecond)
	for _, c := range []struct {
		state verdict.State
		can   verdict.Claimable
		want  string
	}{
		{verdict.Alive, verdict.Claimable{}, ""},
		{verdict.Dead, verdict.Claimable{By: "a token of old-host"}, "only when somebody acts: blocked by a token of old-host"},
		{verdict.Dead, verdict.Claimable{By: "a token", At: soon}, "in 13s; till then blocked by a token"},
		{verdict.Dead, verdict.Claimable{By: "a token", At: now.Add(-time.Second)}, "only when somebody acts: blocked by a token"},
		{verdict.Live, verdict.Claimable{When: verdict.At, At: soon}, "in 13s at the earliest, at 14:02:41, if nothing is renewed"},
		{verdict.Live, verdict.Claimable{When: verdict.Event}, "when its holder releases it or dies"},
		{verdict.Stopped, verdict.Claimable{When: verdict.Event}, "when its holder goes on and releases it, or dies"},
		{verdict.Free, verdict.Claimable{When: verdict.Now}, "now: nobody holds it"},
		{verdict.Expired, verdict.Claimable{When: verdict.Now}, "now: whoever comes next takes it"},
	} {
		if got := text.Clears(verdict.Verdict{State: c.state, Claimable: c.can}, now); got != c.want {
			t.Errorf("%v, %+v: got %q, want %q", c.state, c.can, got, c.want)
		}
	}
}
