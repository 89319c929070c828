interface Window {
  Bokeh: any;
  __dgkitBokeh: any;
}
