"""What `wdspec preview` is made of: a spec's first samples, charts and findings, as one page of HTML.

`spec_preview.py` collects, `value_media.py` turns values into what a browser shows, `preview_charts.py` draws, and
`preview_page.py` puts it all into `preview_page.html.jinja`. Start with `spec_preview.py`.
"""
