package cli

import "testing"

func TestAThemeMayBeSpeltAsAnyReaderSpellsIt(t *testing.T) {
	root := t.TempDir()
	for name, want := range map[string]int{
		"colour-blind": 0, "colourblind": 0, "color-blind": 0, "colorblind": 0, "mono": 0, "default": 0, "colour": codeUsage, "": codeUsage,
	} {
		if code, _, complaint := run(t, nil, "ls", root, "--theme", name); code != want {
			t.Errorf("--theme %q exits with %d: %s", name, code, complaint)
		}
	}
}
