package sum

import "testing"

func TestSum(t *testing.T) {
	if sum(2, 3) != 5 || words != "two" {
		t.Fatal("2 + 3 is not 5, or two is not two")
	}
}

func TestNothing(t *testing.T) {}

func TestWrong(t *testing.T) {
	t.Fatal("this one fails with nothing broken")
}
