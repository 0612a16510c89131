package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A figure is a row of plots.
type figure []*plot.Plot

const (
	panelWidth  = 4.4 * vg.Inch
	panelHeight = 3.3 * vg.Inch
)

// Colours that differ in lightness too, on white.
var (
	blue   = color.RGBA{R: 0x1b, G: 0x5e, B: 0xa8, A: 0xff}
	orange = color.RGBA{R: 0xd9, G: 0x6a, B: 0x0c, A: 0xff}
	green  = color.RGBA{R: 0x1f, G: 0x7a, B: 0x3a, A: 0xff}
	grey   = color.RGBA{R: 0x8a, G: 0x8a, B: 0x8a, A: 0xff}
)

func init() {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
}

// newPlot has a title and both axes named, with their units.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Font.Size, p.Title.Padding = 12, 4
	p.Legend.Top, p.Legend.Padding, p.Legend.YOffs = true, 2, -4
	p.Add(plotter.NewGrid())
	p.Y.Min = 0
	return p
}

// save writes the row as SVG on a white ground.
func (f figure) save(file string) error {
	c := vgsvg.New(panelWidth*vg.Length(len(f)), panelHeight)
	all := draw.New(c)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	tiles := draw.Tiles{Rows: 1, Cols: len(f), PadX: 18, PadTop: 6, PadBottom: 6, PadLeft: 6, PadRight: 12}
	for i, at := range plot.Align([][]*plot.Plot{f}, tiles, all)[0] {
		f[i].Draw(at)
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return err
	}
	// The reader's machine may not have the font that texts were measured with.
	text := strings.ReplaceAll(b.String(), "font-family:Liberation Sans", "font-family:Liberation Sans,Arial,Helvetica,sans-serif")
	return os.WriteFile(file, []byte(text), 0o644)
}

// line adds a line with points.
func line(p *plot.Plot, name string, c color.Color, dashed bool, xy plotter.XYs) {
	l, points, err := plotter.NewLinePoints(xy)
	if err != nil {
		panic(fmt.Sprintf("a line of %s: %v", name, err)) // a result is not a number
	}
	l.Color, l.Width = c, 1.6
	points.Color, points.Shape, points.Radius = c, draw.CircleGlyph{}, 2.6
	if dashed {
		l.Dashes = []vg.Length{4, 3}
	}
	p.Add(l, points)
	p.Legend.Add(name, l, points)
}

// dots adds points that belong to no line.
func dots(p *plot.Plot, name string, c color.Color, shape draw.GlyphDrawer, xy plotter.XYs) {
	s, err := plotter.NewScatter(xy)
	if err != nil {
		panic(fmt.Sprintf("points of %s: %v", name, err))
	}
	s.Color, s.Shape, s.Radius = c, shape, 4
	p.Add(s)
	p.Legend.Add(name, s)
}

// bars adds a group of bars, each with its value above.
func bars(p *plot.Plot, name string, c color.Color, offset, width vg.Length, format string, values plotter.Values) {
	b, err := plotter.NewBarChart(values, width)
	if err != nil {
		panic(fmt.Sprintf("bars of %s: %v", name, err))
	}
	b.Color, b.LineStyle.Width, b.Offset = c, 0, offset
	p.Add(b)
	if name != "" {
		p.Legend.Add(name, b)
	}
	marks := plotter.XYLabels{}
	for i, v := range values {
		p.Y.Max = max(p.Y.Max, v*1.25)
		marks.XYs = append(marks.XYs, plotter.XY{X: float64(i), Y: v})
		marks.Labels = append(marks.Labels, fmt.Sprintf(format, v))
	}
	l, err := plotter.NewLabels(marks)
	if err != nil {
		panic(fmt.Sprintf("values of %s: %v", name, err))
	}
	for i := range l.TextStyle {
		l.TextStyle[i].XAlign, l.TextStyle[i].Font.Size = draw.XCenter, 9
	}
	l.Offset = vg.Point{X: offset, Y: 2}
	p.Add(l)
}

// logTicks marks the given places of a logarithmic axis.
func logTicks(a *plot.Axis, format func(float64) string, at ...float64) {
	a.Scale = plot.LogScale{}
	ticks := make([]plot.Tick, len(at))
	for i, v := range at {
		ticks[i] = plot.Tick{Value: v, Label: format(v)}
	}
	a.Tick.Marker = plot.ConstantTicks(ticks)
}
