// SPDX-License-Identifier: Apache-2.0
// Prebuilt extension of JupyterLab 4: cards in the launcher, commands, a sidebar; it also updates
// the static pictures in a notebook's outputs when the notebook is saved.
//
// It is written in the form in which JupyterLab loads extensions, a container of webpack's module
// federation (init and get), so that no bundler is needed. JupyterLab's own modules come from the
// scope that it shares; if a module is missing there, only the features that need it are left out.
(() => {
  const ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
    <g class="jp-icon3" fill="#616161"><path d="M3 5h7v14H3zm2 2v10h3V7zM14 5h7v14h-7zm2 2v10h3V7z"/>
    <path d="M9 9h4V7l3 3-3 3v-2H9zm6 6h-4v2l-3-3 3-3v2h4z"/></g></svg>`;
  const PICTURES = "dgkit.pictures";
  // Hides "Loading widget..." and "model not found" where the card of a panel follows.
  const STYLE = `.jp-OutputArea-child:has(> .lm-Panel.jp-OutputArea-output):not(:has(> div > *)):has(
    + .jp-OutputArea-child > .jp-RenderedHTMLCommon > .dgkit-saved) { display: none; }`;
  const SAVE_WAIT_MS = 2000;
  const IDLE_WAIT_MS = 1000;
  const WELCOME = "dgkit-welcome.ipynb";
  const SESSION = [
    "import os",
    "",
    "import dgkit",
    "",
    "# The DPU that `dgkit lab` has started or was given; without one, a software DPU.",
    'session = dgkit.connect(os.environ.get("DGKIT_ADDRESS"))',
  ];
  const NOTEBOOKS = {
    dashboard: {
      label: "dgkit dashboard",
      caption: "A new notebook with all panels of dgkit: allocate, transfer, look, measure",
      source: [...SESSION, "dashboard = dgkit.dashboard(session)", "dashboard"].join("\n"),
    },
    doctor: {
      label: "dgkit doctor",
      caption: "A new notebook that says what this machine can do, and what is in the way",
      source: ["import dgkit", "", "doctor = dgkit.DoctorPanel()", "doctor"].join("\n"),
    },
  };
  // Read when the page is opened, since JupyterLab changes its address when it opens a file.
  const wanted = new URLSearchParams(window.location.search).get("dgkit");
  const files = new URL(".", document.currentScript.src);
  let scope = {};

  async function shared(name) {
    const [version] = Object.values(scope[name] ?? {});
    return version ? (await version.get())() : null;
  }

  async function open(app, path, options = {}) {
    const panel = await app.commands.execute("docmanager:open", { path, factory: "Notebook", ...options });
    await panel.context.ready;
    await panel.sessionContext.ready;
    return panel;
  }

  async function openNew(app, source) {
    const kernel = app.serviceManager.kernelspecs.specs?.default ?? "python3";
    const { path } = await app.serviceManager.contents.newUntitled({ type: "notebook", path: "" });
    const panel = await open(app, path, { kernel: { name: kernel } });
    const cells = panel.content.model.sharedModel;
    cells.insertCell(0, { cell_type: "code", source });
    panel.content.activeCellIndex = 0;
    app.shell.activateById(panel.id);
    await app.commands.execute("notebook:run-cell");
    return panel;
  }

  // Links of the notebook to the tutorials, as they are reached from a folder with these files; without them, text.
  function linked(notebook, names) {
    const folder = names.includes("01_first_dma.ipynb") ? "" : names.includes("tutorials") ? "tutorials/" : null;
    const link = (_, text, name) => (folder === null ? `${text} (\`${name}\`)` : `[${text}](${folder}${name})`);
    for (const cell of notebook.cells)
      if (cell.cell_type === "markdown")
        cell.source = [cell.source]
          .flat()
          .join("")
          .replace(/\[([^\]]+)\]\(tutorials\/([^)]+)\)/g, link);
    return notebook;
  }

  // Creates the file only if it is missing, so that a student's changes are kept.
  async function openWelcome(app) {
    const { contents } = app.serviceManager;
    const names = (await contents.get("", { content: true })).content.map(({ name }) => name);
    if (!names.includes(WELCOME)) {
      const answer = await fetch(new URL("welcome.ipynb", files));
      if (!answer.ok) throw new Error(`welcome.ipynb: ${answer.status} ${answer.statusText}`);
      const content = linked(await answer.json(), names);
      await contents.save(WELCOME, { type: "notebook", format: "json", content });
    }
    return open(app, WELCOME);
  }

  function addCommands(app, launcher, palette, icon) {
    const add = (id, options, execute) => {
      app.commands.addCommand(id, { ...options, icon, execute });
      launcher?.add({ command: id, category: "dgkit" });
      palette?.addItem({ command: id, category: "dgkit" });
    };
    add(
      "dgkit:welcome",
      {
        label: "Welcome to dgkit",
        caption: `Open ${WELCOME}: the first DMA, and where to go on`,
      },
      () => openWelcome(app),
    );
    for (const [name, { label, caption, source }] of Object.entries(NOTEBOOKS)) {
      add(`dgkit:${name}`, { label, caption }, () => openNew(app, source));
    }
    return ["dgkit:welcome", ...Object.keys(NOTEBOOKS).map((name) => `dgkit:${name}`)];
  }

  function addSidebar(app, Widget, commands, icon) {
    const node = document.createElement("div");
    node.style.cssText = "padding: 12px; overflow: auto; display: grid; gap: 8px; align-content: start;";
    const title = document.createElement("h2");
    title.textContent = "dgkit";
    title.style.cssText = "margin: 0; font-size: var(--jp-ui-font-size2);";
    node.append(title);
    for (const command of commands) {
      const button = document.createElement("button");
      button.className = "jp-mod-styled jp-mod-accept";
      button.textContent = app.commands.label(command);
      button.title = app.commands.caption(command);
      button.style.cssText = "height: auto; min-height: 32px; text-align: left; white-space: normal;";
      button.onclick = () => app.commands.execute(command);
      const text = document.createElement("p");
      text.textContent = app.commands.caption(command);
      text.style.cssText = "margin: 0 0 8px; color: var(--jp-ui-font-color1); line-height: 1.4;";
      node.append(button, text);
    }
    const widget = new Widget({ node });
    widget.id = "dgkit-sidebar";
    widget.title.caption = "dgkit";
    widget.title.icon = icon;
    app.shell.add(widget, "left", { rank: 900 });
  }

  // A saved widget of anywidget has code, and JupyterLab's widget manager loads the saved widgets of
  // untrusted notebooks, too. It asks for them once, after the notebook is loaded: withhold them then.
  // The file keeps them, and they are loaded when the notebook is trusted and opened again. But the server
  // also signs a notebook that nobody trusted, when it is saved and no output could have code. So an output
  // has to show one of them, too: only a cell that was trusted with its output keeps it.
  function withholdWidgets({ context }) {
    context.ready.then(() => {
      const { model } = context;
      const code = [...model.cells].filter(({ type }) => type === "code");
      const saved = model.getMetadata("widgets")?.["application/vnd.jupyter.widget-state+json"]?.state ?? {};
      const idOf = ({ data }) => data?.["application/vnd.jupyter.widget-view+json"]?.model_id;
      const shown = (output) => typeof idOf(output) === "string" && Object.hasOwn(saved, idOf(output));
      const isTrusted = code.every(({ trusted }) => trusted);
      if (isTrusted && code.some(({ outputs }) => outputs.toJSON().some(shown))) return;
      const metadata = model.getMetadata.bind(model);
      model.getMetadata = (key) => (key === "widgets" ? undefined : metadata(key));
    });
  }

  // The static pictures in a notebook: their outputs, and their ids in the kernel.
  function picturesOf(notebook) {
    return [...(notebook.cells ?? [])]
      .flatMap(({ outputs }) =>
        Array.from({ length: outputs?.length ?? 0 }, (_, index) => ({
          outputs,
          index,
          ...outputs.get(index).metadata?.dgkit,
        })),
      )
      .filter(({ picture }) => picture);
  }

  // Waits at most a second until a kernel is idle, since the kernel also answers the page's panels;
  // resolves to whether it is idle.
  function isIdle(kernel) {
    return new Promise((resolve) => {
      const look = () => kernel.status === "idle" && end(true);
      const end = (idle) => {
        clearTimeout(timer);
        kernel.statusChanged.disconnect(look);
        resolve(idle);
      };
      const timer = setTimeout(end, IDLE_WAIT_MS, false);
      kernel.statusChanged.connect(look);
      look();
    });
  }

  // Asks the kernel for the pictures that have changed (see dgkit/widgets/base/static_output.py).
  async function renewPictures({ content, sessionContext }) {
    const kernel = sessionContext.session?.kernel;
    const shown = picturesOf(content.model);
    if (!shown.length || !kernel || !(await isIdle(kernel))) return;
    const info = await kernel.requestCommInfo({ target_name: PICTURES });
    const [id] = Object.keys(info.content.comms ?? {});
    if (!id) return;
    let pictures = {};
    const comm = kernel.createComm(PICTURES, id);
    try {
      comm.onMsg = (message) => (pictures = message.content.data.pictures);
      const states = Object.fromEntries(shown.map(({ picture, state }) => [picture, state]));
      await comm.send({ states }).done;
    } finally {
      comm.dispose(); // closes only this page's side
    }
    for (const { outputs, index, picture, state } of picturesOf(content.model)) {
      const renewed = pictures[picture];
      if (!renewed || renewed.metadata.dgkit.state === state) continue;
      outputs.set(index, { ...outputs.get(index).toJSON(), ...renewed });
    }
  }

  // Renews a notebook's pictures whenever it is saved; a failure does not prevent the save.
  function renewAtSave(panel) {
    const { context } = panel;
    const save = context.save.bind(context);
    context.save = async (...given) => {
      const late = new Promise((resolve) => setTimeout(resolve, SAVE_WAIT_MS));
      const renewed = renewPictures(panel).catch((error) => console.warn("dgkit:", error));
      await Promise.race([renewed, late]);
      return save(...given);
    };
  }

  async function plugins() {
    const [launcher, apputils, widgets, ui, notebook] = await Promise.all(
      [
        "@jupyterlab/launcher",
        "@jupyterlab/apputils",
        "@lumino/widgets",
        "@jupyterlab/ui-components",
        "@jupyterlab/notebook",
      ].map(shared),
    );
    const optional = [launcher?.ILauncher, apputils?.ICommandPalette, notebook?.INotebookTracker].filter(Boolean);
    return {
      id: "dgkit:extension",
      description: "Cards in the launcher, commands, a sidebar and pictures at each save for dgkit.",
      autoStart: true,
      optional,
      activate: (app, ...services) => {
        const style = document.createElement("style");
        style.textContent = STYLE;
        document.head.append(style);
        const given = (token) => (token ? services[optional.indexOf(token)] : null);
        const icon = ui ? new ui.LabIcon({ name: "dgkit:icon", svgstr: ICON }) : undefined;
        const commands = addCommands(app, given(launcher?.ILauncher), given(apputils?.ICommandPalette), icon);
        const tracker = given(notebook?.INotebookTracker);
        const prepare = (panel) => {
          withholdWidgets(panel);
          renewAtSave(panel);
        };
        tracker?.forEach(prepare);
        tracker?.widgetAdded.connect((_, panel) => prepare(panel));
        if (widgets && app.name === "JupyterLab") addSidebar(app, widgets.Widget, commands, icon);
        if (commands.includes(`dgkit:${wanted}`)) {
          app.restored
            .then(() => app.commands.execute(`dgkit:${wanted}`))
            .catch((error) => {
              console.warn("dgkit:", error);
              apputils?.Notification?.warning(`dgkit: ${error.message}`, { autoClose: 5000 });
            });
        }
      },
    };
  }

  window._JUPYTERLAB ??= {};
  window._JUPYTERLAB.dgkit = {
    init(given) {
      scope = given;
    },
    async get(name) {
      if (name !== "./extension") throw new Error(`dgkit has no module ${name}`);
      const plugin = await plugins();
      return () => ({ __esModule: true, default: plugin });
    },
  };
})();
