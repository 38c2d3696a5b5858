# Ridgebeam's web app: slim, without torch, not as root. docs/hosting.md says how to run it.
FROM python:3.12-slim-bookworm

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    RIDGEBEAM_SHARED=1 \
    STREAMLIT_SERVER_ADDRESS=0.0.0.0 \
    STREAMLIT_SERVER_PORT=8501 \
    STREAMLIT_SERVER_HEADLESS=true \
    STREAMLIT_SERVER_ALLOWED_HOSTS=*

RUN useradd --create-home --uid 1000 ridgebeam
WORKDIR /home/ridgebeam/app

# Dependencies first: they change less often than the code.
COPY pyproject.toml constraints.txt README.md LICENSE cli.py ./
RUN python -m pip install -c constraints.txt -e .

COPY --chown=ridgebeam . .
USER ridgebeam
RUN python -m calc.simulation.warm

EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]
CMD ["python", "-m", "streamlit", "run", "app.py"]
